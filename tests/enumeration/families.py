"""Hand-written values for families of operators that neither OpInfo nor the schema's types describe.

In: a subject.  Out: values by argument name, or the reason why the subject is excluded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.enumeration.overloads import Subject

Values = dict[str, Any]
EXCLUDED: tuple[tuple[str, str], ...] = (
    (r"^symm_mem::|^_c10d_functional::|^_dtensor::", "needs a process group"),
    (r"^aten::(_?cudnn|miopen|_?fused_dropout|_thnn_fused|_cslt|_sparse_semi)", "no kernel for the CPU"),
    (r"^mkldnn::|^onednn::", "needs weights packed by oneDNN"),
    (r"^aten::record_stream", "needs a stream of a device"),
    (r"^inductor::_mm_plus_mm", "needs a device"),
    (r"^aten::(manual_seed|seed)\.", "writes to a generator, which a graph does not take"),
    (r"MKLDNN|^aten::_?mkldnn", "needs a tensor in oneDNN's layout"),
    (r"overrideable", "no kernel for the CPU"),
    (r"^aten::(_nested_tensor_from_tensor_list|_nnpack_spatial|_sobol_engine_initialize)", "eager itself crashes on tensors made from the schema"),
)


def excluded(subject: Subject) -> str:
    if subject.call is None:
        return "a primitive of TorchScript: no operator of the dispatcher"
    if subject.schema is None:
        return ""
    if any(str(each.type).startswith(("Dict", "List[t]", "t", "List[str]")) and each.alias_info is not None and each.alias_info.is_write for each in subject.schema.arguments):
        return "a primitive of TorchScript: writes to a copy of a Python container"
    if re.fullmatch(r"List\[(int|float|bool)\]", str(subject.schema.arguments[0].type)):
        return "a primitive of TorchScript: writes to a copy of a Python container"
    return next((reason for pattern, reason in EXCLUDED if re.search(pattern, subject.name)), "")


FAMILIES: list[tuple[re.Pattern[str], Callable[[Subject], Iterator[Values]]]] = []


def family(pattern: str) -> Callable[[Callable[[Subject], Iterator[Values]]], Callable[[Subject], Iterator[Values]]]:
    def register(make: Callable[[Subject], Iterator[Values]]) -> Callable[[Subject], Iterator[Values]]:
        FAMILIES.append((re.compile(pattern), make))
        return make

    return register


def candidates_of_family(subject: Subject) -> Iterator[Values]:
    for pattern, make in FAMILIES:
        if pattern.search(subject.name):
            yield from make(subject)


def ramp(*shape: int, start: float = 0.5) -> torch.Tensor:
    count = 1
    for size in shape:
        count *= size
    return torch.arange(count, dtype=torch.float32).view(shape) / 4 + start


def by_type(subject: Subject, **given: Any) -> Values:
    """The given values; numbers and flags by their types for the others without a default."""
    values: Values = {}
    for each in subject.schema.arguments:
        kind = str(each.type)
        if each.name in given:
            values[each.name] = given[each.name]
        elif not each.has_default_value() and not each.is_out:
            values[each.name] = {"float": 0.5, "int": 1, "bool": False, "number": 0.5, "str": "sum"}.get(kind)
    return values


@family(r"^aten::_fused_(adam|adamw|sgd|adagrad)")
def fused_optimizers(subject: Subject) -> Iterator[Values]:
    def lists(start: float) -> list[torch.Tensor]:
        return [ramp(2, 2, start=start), ramp(3, start=start + 1)]

    steps = [torch.tensor(1.0), torch.tensor(2.0)]
    for rate in (0.5, torch.tensor(0.5)):
        yield by_type(subject, self=lists(1), grads=lists(2), exp_avgs=lists(0), exp_avg_sqs=lists(1), max_exp_avg_sqs=[], state_sums=lists(1), state_steps=steps,
                      momentum_buffer_list=lists(0), lr=rate, beta1=0.5, beta2=0.5, weight_decay=0.25, eps=0.125, amsgrad=False, maximize=False, momentum=0.5,
                      dampening=0.0, nesterov=False, is_first_step=False, lr_decay=0.25)  # fmt: skip


@family(r"^aten::(set_|_set_)|^aten::set\.|^aten::resize|^aten::_resize|^aten::resize_as")
def memory_of_tensors(subject: Subject) -> Iterator[Values]:
    other = ramp(3, start=7)
    yield by_type(subject, self=ramp(3), source=other, the_template=ramp(2), size=[2], stride=[1], storage_offset=0)
    yield by_type(subject, self=ramp(3), source=other.untyped_storage(), size=[2], stride=[1], storage_offset=0)
    yield by_type(subject, self=ramp(3), source=other.untyped_storage())


@family(r"^aten::(normal|bernoulli|uniform|random|geometric|cauchy|exponential|log_normal|multinomial|poisson|binomial|dropout|rand|randn|randint|randperm)")
def random_numbers(subject: Subject) -> Iterator[Values]:
    half = torch.full((3,), 0.5)
    given: Values = {"p": 0.5, "mean": 0.0, "std": 1.0, "from": 0, "to": 9, "low": 0, "high": 9, "n": 5, "size": [3], "num_samples": 2, "lambd": 1.0, "median": 0.0, "sigma": 1.0}
    yield by_type(subject, self=half.clone(), input=half.clone(), **given)
    yield by_type(subject, self=half.clone(), **(given | {"p": half.clone(), "mean": half.clone(), "std": half.clone()}))
    yield by_type(subject, self=half.clone(), **(given | {"mean": half.clone()}))
    yield by_type(subject, self=half.clone(), **(given | {"std": half.clone()}))
    yield by_type(subject, count=torch.full((3,), 5.0), prob=half.clone())


def quantized(start: float) -> torch.Tensor:
    return torch.quantize_per_tensor(ramp(3, start=start), 0.125, 10, torch.quint8)


@family(r"^quantized::")
def quantized_operators(subject: Subject) -> Iterator[Values]:
    for scalar in (0.5, torch.tensor(0.5)):
        yield by_type(subject, qa=quantized(0), qb=quantized(1), qx=[quantized(0), quantized(1)], b=scalar, dim=0, out=torch.quantize_per_tensor(torch.zeros(3), 0.25, 3, torch.quint8))
    yield by_type(subject, qa=quantized(0), qb=quantized(1), qx=[quantized(0), quantized(1)], b=0.5, dim=0, out=torch.quantize_per_tensor(torch.zeros(6), 0.25, 3, torch.quint8))


@family(r"batch_norm|fused_moving_avg|rrelu|embedding_renorm|_cum(max|min)_helper")
def running_statistics(subject: Subject) -> Iterator[Values]:
    one = torch.tensor([1])
    yield by_type(subject, input=ramp(4, 3), weight=torch.ones(3), bias=torch.zeros(3), running_mean=torch.zeros(3), running_var=torch.ones(3), training=True, momentum=0.5, eps=0.25)
    yield by_type(subject, self=ramp(3), observer_on=one, fake_quant_on=one, running_min=torch.zeros(1), running_max=torch.ones(1), scale=torch.ones(1), averaging_const=0.5,
                  zero_point=torch.zeros(1, dtype=torch.int32), quant_min=0, quant_max=255, ch_axis=0)
    yield by_type(subject, self=ramp(3, start=-0.5), noise=torch.zeros(3), training=True)
    yield by_type(subject, self=ramp(3, 2), indices=torch.tensor([0, 1]), max_norm=1.0, norm_type=2.0)
    yield by_type(subject, self=ramp(3), values=torch.zeros(3), indices=torch.zeros(3, dtype=torch.int64), dim=0)


@family(r"^aten::(_?sparse|copy_sparse|_coalesced|sspaddmm|hspmm|_indices_copy|_values_copy|indices_copy|values_copy|crow|ccol|col_indices|row_indices|_spdiags|to_sparse|_to_sparse)")
def sparse_operators(subject: Subject) -> Iterator[Values]:
    def one() -> torch.Tensor:
        return torch.eye(3).to_sparse()

    given: Values = {"size": [3, 3], "sparse_dim": 2, "dense_dim": 0, "coalesced": False, "dim": 0, "mat1": one(), "mat2": torch.eye(3), "src": one(), "other": one(), "mask": one(), "t": one(), "batch1": torch.ones(1, 3, 3)}
    for layout in (one, lambda: torch.eye(3).to_sparse_csr(), lambda: torch.eye(3).to_sparse_csc(), lambda: torch.eye(3)):
        yield by_type(subject, self=layout(), input=layout(), **given)
        yield by_type(subject, self=layout(), **(given | {"out": layout()}))


@family(r"^aten::(set_data|retain_grad|requires_grad_)|^aten::_amp|^aten::_foreach_copy|^aten::copy")
def metadata_of_tensors(subject: Subject) -> Iterator[Values]:
    if "_amp_foreach" in subject.name:
        yield by_type(subject, self=[ramp(3), ramp(2)], found_inf=torch.zeros(1), inv_scale=torch.full((1,), 0.5))
    elif "_amp" in subject.name:
        yield by_type(subject, self=torch.ones(1), growth_tracker=torch.zeros(1, dtype=torch.int32), found_inf=torch.ones(1), scale_growth_factor=2.0, scale_backoff_factor=0.5, growth_interval=1)
    elif "set_data" in subject.name:
        yield by_type(subject, self=ramp(3), new_data=ramp(3, start=9))
    else:
        yield by_type(subject, self=ramp(3), src=ramp(3, start=9), requires_grad=False)
