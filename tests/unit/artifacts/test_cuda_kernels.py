"""Triton kernels as data: what is written and loaded launches as Inductor's own object does.

The launcher of Inductor is real; the kernel below it and torch's C launcher stand for those of a GPU.
"""

from __future__ import annotations

import contextlib
import types
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch._inductor.runtime import triton_heuristics as heuristics

from stator.artifacts.pass_data import PassWriter
from stator.artifacts.pass_reader import AlignedPass, PassReader
from stator.artifacts.value_writer import NotPortable
from stator.emit.resume.advance import Points

BINARY = b"a binary of a kernel"
RUNTIME = "torch._inductor.runtime"


class Driver:
    """Stands for torch._C._StaticCudaLauncher."""

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.loaded: list[tuple[Any, ...]] = []

    def _load_kernel(self, path: str, name: str, shared: int, device: int) -> tuple[int, int, int]:
        with open(path, "rb") as file:
            self.loaded.append((file.read(), name, shared, device))
        return 77, 12, 0

    def _launch_kernel(self, *args: Any) -> None:
        self.launched.append(args)


def static_kernel(driver: Driver) -> Any:
    class StaticallyLaunchedCudaKernel:
        name, shared, num_warps, arg_tys, hash = "triton_poi_fused_0", 32, 4, "OOi", "0" * 64
        arg_names, declared_constexprs, full_constexprs = ["in_ptr0", "out_ptr0", "xnumel", "XBLOCK"], [3], [3]
        has_global_scratch = has_profile_scratch = True
        cubin_path, cubin_raw, n_regs, n_spills = "here", BINARY, 12, 0

        def load_kernel(self, device: int) -> None:
            pass

        def run(self, x: int, y: int, z: int, stream: int, *args: Any) -> None:
            driver._launch_kernel(77, x, y, z, self.num_warps, self.shared, self.arg_tys + "OO", (*args, None, None),
                                  stream)

    return StaticallyLaunchedCudaKernel()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(torch._C, "_StaticCudaLauncher", made, raising=False)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "_DeviceGuard", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(heuristics, "triton_hash_to_path_key", lambda key: key)
    monkeypatch.setattr(heuristics, "triton_version_uses_attrs_dict", lambda: True)
    return made


def autotuner(driver: Driver, launchers: int = 1) -> Any:
    config = types.SimpleNamespace(kwargs={"XBLOCK": 128}, num_warps=4, num_stages=1, pre_hook=None)
    meta = {"device": 0, "constants": {"XBLOCK": 128},
            "signature": {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}}
    result = heuristics.StaticTritonCompileResult(static_kernel(driver), config, meta, {"grid_type": "Grid1D"})
    found = object.__new__(heuristics.CachingAutotuner)
    found.inductor_meta, found.triton_meta = {"grid_type": "Grid1D"}, meta
    found.launchers = [result.make_launcher() for _ in range(launchers)]
    return found


def again(value: object) -> Any:
    """A value, written and read."""
    def program() -> None: ...

    writer = PassWriter(program)
    data = writer.value(value)
    return PassReader(writer.rows, program, Points("program", print, print), writer.blobs).value(data)


@pytest.fixture(autouse=True)
def plain_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's class of configurations, where Triton is missing."""
    monkeypatch.setattr(heuristics, "Config", types.SimpleNamespace)
    monkeypatch.setattr(heuristics, "config_to_dict", lambda config: dict(config.kwargs))


def test_a_kernel_launches_as_before(driver: Driver) -> None:
    kernel = autotuner(driver)
    kernel.launchers[0]("in", "out", 1000, stream=5)
    loaded = again(again(kernel))  # what was loaded is stored again
    loaded.run("in", "out", 1000, stream=5)
    assert driver.launched[0] == driver.launched[1]
    assert driver.launched[0][1:4] == (8, 1, 1)
    assert driver.loaded[-1] == (BINARY, "triton_poi_fused_0", 32, 0)


def test_a_kernel_without_a_choice_has_its_first_configuration(driver: Driver) -> None:
    kernel = autotuner(driver, launchers=2)
    again(kernel).run("in", "out", 1000, stream=5)
    kernel.launchers[0]("in", "out", 1000, stream=5)
    assert driver.launched[0] == driver.launched[1]


def test_a_kernel_that_was_not_called_is_compiled(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = autotuner(driver, launchers=0)
    ready = autotuner(driver).launchers
    monkeypatch.setattr(heuristics.CachingAutotuner, "precompile", lambda self: self.launchers.extend(ready))
    again(kernel).run("in", "out", 1000, stream=5)
    assert driver.launched[0][1:4] == (8, 1, 1)


def test_a_kernel_that_triton_launches_is_launched_by_torch(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, static = autotuner(driver), static_kernel(driver)
    kernel.launchers[0]("in", "out", 1000, stream=5)
    metadata = types.SimpleNamespace(launch_pdl=False, num_ctas=1)
    compiled = types.SimpleNamespace(metadata=metadata, asm={"cubin": BINARY})
    kernel.launchers[0].__globals__.update(runner=print, bin=compiled)
    module = "static_triton_launcher" if find_spec(f"{RUNTIME}.static_triton_launcher") else "static_cuda_launcher"
    monkeypatch.setattr(import_module(f"{RUNTIME}.{module}"), "StaticallyLaunchedCudaKernel", lambda each: static)
    again(kernel).run("in", "out", 1000, stream=5)
    assert driver.launched[0] == driver.launched[1] and driver.loaded[-1][0] == BINARY
    metadata.launch_pdl = True
    with pytest.raises(NotPortable, match="by code of Triton, with launch_pdl"):
        again(kernel)


def test_misaligned_inputs_are_copied_and_written_back() -> None:
    from torch._inductor.utils import align_inputs_from_check_idxs

    given: list[Any] = []

    def run(args: list[Any]) -> Any:
        given.extend(args)
        args[0].add_(1)
        return [args[0] * 2]

    def of(make: Any) -> tuple[Any, Any, bool]:
        given.clear()
        memory = torch.arange(9.0)
        out = make()([memory[1:], memory[:8]])
        return out[0], memory, given[0].data_ptr() % 16 == 0

    inductor = of(lambda: align_inputs_from_check_idxs(run, [0, 1], {0}))
    ours = of(lambda: AlignedPass(run, [0, 1], [0]))
    assert torch.equal(inductor[0], ours[0]) and torch.equal(inductor[1], ours[1]) and ours[2] and inductor[2]
