"""Kernels of a GPU program: how many there are of each kind, and how many of them differ."""

from benchmarks import gpu

# Two equal additions of other names, one of another shape, a fusion of a fusion by Triton, and two products of cuBLAS.
PROGRAM = """
HloModule jit_step, is_scheduled=true

%first (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %sum = f32[8]{0} add(%a, %a), metadata={op_name="one"}
}

%second (b: f32[8]) -> f32[8] {
  %b = f32[8]{0} parameter(0)
  ROOT %total = f32[8]{0} add(%b, %b), metadata={op_name="other"}
}

%third (c: f32[9]) -> f32[9] {
  %c = f32[9]{0} parameter(0)
  ROOT %sum.1 = f32[9]{0} add(%c, %c)
}

%outer (d: f32[8]) -> f32[8] {
  %d = f32[8]{0} parameter(0)
  ROOT %inner = f32[8]{0} fusion(%d), kind=kCustom, calls=%first
}

ENTRY %main (p: f32[8], q: f32[9]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %q = f32[9]{0} parameter(1)
  %x = f32[8]{0} fusion(%p), kind=kLoop, calls=%first
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%second
  %z = f32[9]{0} fusion(%q), kind=kLoop, calls=%third
  %w = f32[8]{0} fusion(%y), kind=kCustom, calls=%outer, backend_config={"kind":"__triton"}
  %one = f32[8]{0} custom-call(%w, %y), custom_call_target="cublas"
  ROOT %other = f32[8]{0} custom-call(%x, %y), custom_call_target="cublas"
}
"""


def test_kernels_that_differ_in_names_alone_count_once():
    """The fusion inside another one is not a kernel."""
    assert gpu.count_kernels(PROGRAM) == {"__triton": [1, 1], "cublas": [2, 1], "kLoop": [3, 2]}
