"""Further hand-written values: indexing, limits, quantizers, norms, convolutions, losses, sampling grids.

In: a subject.  Out: values by argument name, registered with `families`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.enumeration.families import Values, by_type, family, quantized, ramp
from tests.enumeration.overloads import Subject


@family(r"^aten::scatter|^aten::(_?index_put|_unsafe_index_put|index\.|_index_put_impl)|^prims::_unsafe_index_put_|^aten::(select|narrow|slice|diagonal|as_strided)")
def indexing(subject: Subject) -> Iterator[Values]:
    index = torch.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 0]])
    for reduce in ("add", "sum"):
        yield by_type(subject, self=ramp(3, 3), dim=0, index=index, value=9.0, src=ramp(3, 3, start=20), reduce=reduce)
    yield by_type(subject, self=ramp(3, 3), indices=[torch.tensor([0, 2])], values=ramp(2, 3, start=20), accumulate=False, unsafe=False)
    yield by_type(subject, self=ramp(3, 3), src=ramp(3, start=20), dim=0, index=1, start=0, length=2, size=[2, 2], stride=[1, 2], offset=0)


@family(r"^aten::(clamp|clip)(_|\.)")
def limits(subject: Subject) -> Iterator[Values]:
    yield by_type(subject, self=ramp(3), min=0.75, max=0.875)
    yield by_type(subject, self=ramp(3), min=torch.full((3,), 0.75), max=torch.full((3,), 0.875))


@family(r"^aten::(resize|_resize_output)")
def resized_outputs(subject: Subject) -> Iterator[Values]:
    yield by_type(subject, self=ramp(4), size=[2, 2], device=torch.device("cpu"))


@family(r"^aten::retain_grad")
def retained(subject: Subject) -> Iterator[Values]:
    yield {"self": ramp(3).requires_grad_()}


@family(r"^aten::native_batch_norm_backward|^aten::native_(layer|group)_norm")
def normalizations(subject: Subject) -> Iterator[Values]:
    yield by_type(subject, grad_out=ramp(4, 3), input=ramp(4, 3), weight=torch.ones(3), running_mean=torch.zeros(3), running_var=torch.ones(3), save_mean=torch.zeros(3),
                  save_invstd=torch.ones(3), train=True, eps=0.25, output_mask=[True, True, True])
    yield by_type(subject, input=ramp(4, 3), normalized_shape=[3], weight=torch.ones(3), bias=torch.zeros(3), eps=0.25)


@family(r"quantize|_int_mm|_cdist|int_repr|qtensor|q_per")
def quantizers(subject: Subject) -> Iterator[Values]:
    scales, points = torch.full((3,), 0.25), torch.zeros(3)
    per_channel = torch.quantize_per_channel(ramp(3, 3), scales, points.long(), 0, torch.quint8)
    for value in (ramp(3, 3), per_channel, quantized(1), [quantized(0), quantized(1)]):
        given: Values = {"scales": scales, "zero_points": points, "zero_point": 0, "scale": 0.25, "axis": 0, "dtype": torch.quint8, "quant_min": 0, "quant_max": 255, "reduce_range": False}
        yield by_type(subject, self=value, tensors=value, **given)
        yield by_type(subject, self=value, **(given | {"scale": torch.tensor([0.25]), "zero_point": torch.tensor([0], dtype=torch.int32)}))
        yield by_type(subject, self=value, **(given | {"scale": scales, "zero_point": points.to(torch.int32)}))
    yield by_type(subject, self=torch.ones(17, 8, dtype=torch.int8), mat2=torch.ones(8, 8, dtype=torch.int8))


@family(r"^aten::(linalg_cond|linalg_norm|linalg_matrix_norm|norm|nuclear_norm)")
def norms(subject: Subject) -> Iterator[Values]:
    for order in ("fro", 2, None):
        yield by_type(subject, self=ramp(3, 3) + torch.eye(3), ord=order, p=order, dim=[0, 1], keepdim=False, dtype=torch.float32)


@family(r"upsample_(nearest|bilinear|bicubic|lanczos|_?nearest_exact)?.*(2d|3d).*")
def upsampling(subject: Subject) -> Iterator[Values]:
    for rank in (2, 3):
        sizes = [1, 1] + [2] * rank
        given: Values = {"output_size": [4] * rank, "input_size": sizes, "align_corners": False}
        yield by_type(subject, input=ramp(*sizes), self=ramp(*sizes), grad_output=ramp(1, 1, *[4] * rank), **given)
        yield by_type(subject, input=ramp(*sizes), scale_factors=[2.0] * rank, output_size=None, align_corners=False)


@family(r"^aten::(_slow_conv2d|thnn_conv2d|slow_conv|conv_tbc|_?conv)")
def convolutions(subject: Subject) -> Iterator[Values]:
    for rank in (2, 3):
        ones, zeros = [1] * rank, [0] * rank
        given: Values = {"self": ramp(1, 2, *[3] * rank), "weight": ramp(2, 2, *[2] * rank), "kernel_size": [2] * rank, "bias": torch.ones(2), "stride": ones, "padding": zeros,
                         "output_padding": zeros, "dilation": ones, "grad_output": ramp(1, 2, *[2] * rank), "output_mask": [True, True, True]}
        yield by_type(subject, **given)
        outs: Values = {"grad_input": torch.zeros(1, 2, *[3] * rank), "grad_weight": torch.zeros(2, 2, *[2] * rank), "grad_bias": torch.zeros(2)}
        if any(each.name == "grad_input" for each in subject.schema.arguments):
            yield by_type(subject, **given, **outs)
    yield by_type(subject, self=ramp(3, 1, 2), weight=ramp(2, 2, 2), bias=torch.ones(2), pad=0)


@family(r"^aten::nll_loss")
def likelihoods(subject: Subject) -> Iterator[Values]:
    target, weight = torch.tensor([0, 2]), torch.tensor(2.0)
    given: Values = {"weight": None, "reduction": 1, "ignore_index": -100, "total_weight": weight}
    yield by_type(subject, self=ramp(2, 3), target=target, grad_output=torch.tensor(1.0), **given)
    yield by_type(subject, self=ramp(1, 3, 2, 2), target=torch.zeros(1, 2, 2, dtype=torch.int64), grad_output=torch.tensor(1.0), **given)


@family(r"^aten::_ctc_loss")
def alignments(subject: Subject) -> Iterator[Values]:
    scores, targets = torch.log_softmax(ramp(4, 1, 3), 2), torch.tensor([[1, 2]])
    for lengths in ([4], torch.tensor([4])):
        wanted = [2] if isinstance(lengths, list) else torch.tensor([2])
        given: Values = {"log_probs": scores, "targets": targets, "input_lengths": lengths, "target_lengths": wanted, "blank": 0}
        if "backward" in subject.name:
            likelihood, alpha = torch.ops.aten._ctc_loss(scores, targets, [4], [2], 0)
            given |= {"grad": torch.ones(1), "neg_log_likelihood": likelihood, "log_alpha": alpha}
        yield by_type(subject, **given)


@family(r"^aten::(_grid_sampler|affine_grid|col2im|_pack_padded|_embedding_bag|_transform_bias|unsafe_split_with|view_as_complex|glu_|_spdiags|_reshape_alias|randint_like|_sobol_engine|_histogramdd)")
def shaped_operators(subject: Subject) -> Iterator[Values]:
    state = torch.zeros(2, 30, dtype=torch.int64)
    yield by_type(subject, input=ramp(1, 1, 3, 3), grid=ramp(1, 2, 2, 2) / 4, interpolation_mode=0, padding_mode=0, align_corners=False)
    yield by_type(subject, theta=ramp(1, 2, 3), size=[1, 1, 2, 2], align_corners=False)
    yield by_type(subject, self=ramp(1, 4, 4), output_size=[3, 3], kernel_size=[2, 2], dilation=[1, 1], padding=[0, 0], stride=[1, 1])
    yield by_type(subject, input=ramp(3, 2, 2), lengths=torch.tensor([3, 2]), batch_first=False)
    yield by_type(subject, qkv=ramp(1, 2, 12), qkv_bias=torch.ones(12), num_heads=2)
    yield by_type(subject, self=ramp(3, 2), split_sizes=[1, 2], dim=0)
    yield by_type(subject, self=ramp(4, 2), size=[2, 4], stride=[4, 1], dim=1, high=torch.tensor(9))
    yield by_type(subject, glu=ramp(2, 2), x=ramp(2, 4), dx=ramp(2, 4), grad_x=ramp(2, 4), grad_glu=ramp(2, 2), dgrad_glu=ramp(2, 2), dim=1)
    yield by_type(subject, diagonals=ramp(1, 3), offsets=torch.tensor([0]), shape=[3, 3])
    yield by_type(subject, self=state, ltm=torch.ones(2, 30, 30, dtype=torch.int64).tril(), dimension=2)
    yield by_type(subject, self=ramp(4, 2), bins=[torch.linspace(0, 3, 4), torch.linspace(0, 3, 4)])
    indices, offsets = torch.tensor([0, 1, 1]), torch.tensor([0, 2])
    weight, bags = ramp(3, 2), torch.tensor([0, 0, 1])
    given: Values = {"grad": ramp(2, 2), "indices": indices, "offsets": offsets, "offset2bag": bags, "bag_size": torch.tensor([2, 1]), "maximum_indices": torch.zeros(2, dtype=torch.int64),
                     "num_weights": 3, "scale_grad_by_freq": False, "mode": 0, "per_sample_weights": None, "weight": weight, "padding_idx": -1}
    yield by_type(subject, **given)


@family(r"^aten::_foreach_addc(div|mul).*Tensor")
def packed_scalars(subject: Subject) -> Iterator[Values]:
    def pair(start: float) -> list[torch.Tensor]:
        return [ramp(3, start=start), ramp(3, start=start + 1)]

    yield by_type(subject, self=pair(1), tensor1=pair(2), tensor2=pair(3), scalars=torch.tensor([0.5, 2.0]))


@family(r"^aten::_convert_indices_from_csr_to_coo")
def compressed_indices(subject: Subject) -> Iterator[Values]:
    yield by_type(subject, crow_indices=torch.tensor([0, 1, 3]), col_indices=torch.tensor([1, 0, 1]))


@family(r"^aten::_convert_indices_from_coo_to_csr")
def sorted_rows(subject: Subject) -> Iterator[Values]:
    """Rows in order, below the size, not as many as outputs: the kernel checks nothing and would write beyond its output."""
    yield by_type(subject, self=torch.tensor([0, 0, 1, 2, 2]), size=3)


@family(r"^fsdp::")
def sharded_copies(subject: Subject) -> Iterator[Values]:
    yield by_type(subject, tensor=ramp(3), data=ramp(3, start=9))
    yield by_type(subject, all_gather_output=ramp(2, 3), all_gather_input_split_sizes=[1, 2], dim=1, out=[torch.zeros(2, 1), torch.zeros(2, 2)])
    yield by_type(subject, tensors=[ramp(4), ramp(2)], dim=0, num_chunks=2, out=torch.zeros(2, 3))
