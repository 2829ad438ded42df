"""Models of vision, language, graphs and diffusion."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.libraries.registry import Compile, numbers, program, tokens, trained


@program("diffusers")
def unet(compile: Compile) -> Any:
    from diffusers import DDIMScheduler, UNet2DConditionModel

    model: Any = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(16, 32),
        layers_per_block=1,
        cross_attention_dim=16,
        norm_num_groups=8,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    model.eval()
    scheduler: Any = DDIMScheduler(num_train_timesteps=20)
    scheduler.set_timesteps(3)
    call, x = compile(model), numbers(1, 4, 8, 8)
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(call(x, t, encoder_hidden_states=numbers(1, 5, 16)).sample, t, x).prev_sample
    return x


@program("diffusers")
def autoencoder(compile: Compile) -> Any:
    from diffusers import AutoencoderKL

    model: Any = AutoencoderKL(
        block_out_channels=(8, 16),
        norm_num_groups=4,
        latent_channels=4,
        layers_per_block=1,
        sample_size=16,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    encode, decode = compile(model.encode), compile(model.decode)
    posterior = encode(numbers(1, 3, 16, 16)).latent_dist
    return [decode(posterior.mode()).sample.detach(), posterior.kl().detach()]


@program("timm")
def vision_transformer(compile: Compile) -> Any:
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy

    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=16, depth=2, num_classes=10, drop_path_rate=0.1
    )
    mixed, target = Mixup(0.2, num_classes=10)(numbers(4, 3, 32, 32), torch.arange(4))
    call, loss = compile(model), SoftTargetCrossEntropy()
    return trained(model, lambda: loss(call(mixed), target.cpu()))


@program("torchvision")
def detection_losses(compile: Compile) -> Any:
    from torchvision import ops

    boxes = numbers(6, 4).abs().cumsum(1)
    call = compile(
        lambda a, b: [
            ops.box_iou(a, b),
            ops.generalized_box_iou_loss(a, b),
            ops.sigmoid_focal_loss(a, b.sigmoid()),
        ]
    )
    return [call(boxes * k, boxes.flip(0) * k) for k in (1.0, 2.0)]


@program("torchvision")
def image_transforms(compile: Compile) -> Any:
    from torchvision.transforms import v2

    chain = v2.Compose(
        [v2.Resize((16, 16)), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
    )
    call = compile(lambda image: chain(image))
    return [call((numbers(3, 32, 32, seed=k).sigmoid() * 255).to(torch.uint8)) for k in range(2)]


@program("torch_geometric")
def graph_convolution(compile: Compile) -> Any:
    from torch_geometric.nn import GCNConv, global_mean_pool

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = GCNConv(8, 16), GCNConv(16, 4)

        def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
            return global_mean_pool(self.two(self.one(x, edges).relu(), edges), batch, 2)

    model, edges = Net(), torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])
    call, batch = compile(model), torch.tensor([0, 0, 0, 1, 1, 1])
    return trained(model, lambda: call(numbers(6, 8), edges, batch).pow(2).mean())


@program("torch_geometric")
def graph_attention(compile: Compile) -> Any:
    from torch_geometric.nn import GATv2Conv, SAGEConv, to_hetero
    from torch_geometric.nn.models import GAT

    model, edges = GAT(8, 8, 2, 4, heads=2, dropout=0.1), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    call, other = compile(model), compile(SAGEConv(8, 4))
    assert GATv2Conv is not None and to_hetero is not None
    return [
        trained(model, lambda: call(numbers(4, 8), edges).pow(2).mean(), 2),
        other(numbers(4, 8), edges).detach(),
    ]


@program("sentence_transformers")
def sentence_losses(compile: Compile) -> Any:
    from sentence_transformers import util
    from sentence_transformers.util import pairwise_cos_sim

    call = compile(
        lambda a, b: [
            util.cos_sim(a, b),
            pairwise_cos_sim(a, b),
            util.semantic_search(a, b, top_k=2)[0][0]["score"],
        ]
    )
    return [call(numbers(4, 8, seed=k), numbers(4, 8, seed=k + 1)) for k in range(2)]


@program("sentence_transformers")
def sentence_model(compile: Compile) -> Any:
    from sentence_transformers.models import Dense, Normalize, Pooling
    from transformers import BertConfig, BertModel

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(
                BertConfig(
                    vocab_size=64,
                    hidden_size=16,
                    num_hidden_layers=2,
                    num_attention_heads=2,
                    intermediate_size=32,
                )
            )
            self.head = nn.Sequential(Pooling(16), Dense(16, 8), Normalize())

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            states = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            return self.head({"token_embeddings": states, "attention_mask": mask})["sentence_embedding"]

    model = Encoder().eval()
    call = compile(model)
    return [call(tokens(2, n, 64), torch.ones(2, n, dtype=torch.long)).detach() for n in (5, 7)]


@program("einops")
def einops(compile: Compile) -> Any:
    from einops import einsum, pack, rearrange, reduce, repeat, unpack
    from einops.layers.torch import Rearrange, Reduce

    layer = nn.Sequential(
        Rearrange("b (h p) (w q) -> b (h w) (p q)", p=2, q=2), nn.Linear(4, 4), Reduce("b n d -> b d", "mean")
    )

    def attention(x: torch.Tensor) -> Any:
        q, k, v = (rearrange(part, "b n (h d) -> b h n d", h=2) for part in (x, x * 2, x + 1))
        weights = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
        packed, shapes = pack(
            [rearrange(einsum(weights, v, "b h i j, b h j d -> b h i d"), "b h n d -> b n (h d)"), x], "b * d"
        )
        return (
            unpack(packed, shapes, "b * d"),
            reduce(packed, "b n d -> b d", "max"),
            repeat(packed, "b n d -> b (n r) d", r=2),
        )

    one, two = compile(attention), compile(layer)
    return [[one(numbers(2, n, 8)), two(numbers(2, n, 4)).detach()] for n in (4, 6)]


@program("x_transformers")
def x_transformers(compile: Compile) -> Any:
    from x_transformers import Decoder, TransformerWrapper

    model = TransformerWrapper(
        num_tokens=64,
        max_seq_len=32,
        attn_layers=Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True),
    )
    call, ids = compile(model), tokens(2, 10, 64)
    return trained(model, lambda: functional.cross_entropy(call(ids[:, :-1]).transpose(1, 2), ids[:, 1:]))


@program("vit_pytorch")
def vit_pytorch(compile: Compile) -> Any:
    from vit_pytorch import ViT

    model = ViT(
        image_size=32, patch_size=8, num_classes=10, dim=32, depth=2, heads=4, mlp_dim=48, dropout=0.1
    )
    call = compile(model)
    return trained(model, lambda: call(numbers(2, 3, 32, 32)).pow(2).mean())


@program("vector_quantize_pytorch")
def vector_quantize(compile: Compile) -> Any:
    from vector_quantize_pytorch import FSQ, VectorQuantize

    model = VectorQuantize(dim=8, codebook_size=16, decay=0.8)
    one, two = compile(model), compile(FSQ([8, 5, 5]))
    return [
        [one(numbers(2, 6, 8, seed=k)) for k in range(3)],
        list(model.state_dict().values()),
        two(numbers(2, 6, 3)),
    ]


@program("rotary_embedding_torch")
def rotary_embedding(compile: Compile) -> Any:
    from rotary_embedding_torch import RotaryEmbedding

    rotary = RotaryEmbedding(dim=8)
    call = compile(lambda q, k: [rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)])
    return [call(numbers(1, 2, n, 16), numbers(1, 2, n, 16, seed=1)) for n in (6, 6, 9)]


@program("performer_pytorch")
def performer(compile: Compile) -> Any:
    from performer_pytorch import SelfAttention

    model = SelfAttention(dim=32, heads=4, causal=False).eval()
    call = compile(model)
    return [call(numbers(1, 12, 32, seed=k)).detach() for k in range(2)]


@program("segmentation_models_pytorch")
def segmentation(compile: Compile) -> Any:
    import segmentation_models_pytorch as smp

    model = smp.Unet(
        "resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(32, 16, 8), classes=2
    )
    call, loss = compile(model), compile(smp.losses.DiceLoss("multiclass"))
    target = (numbers(2, 32, 32) > 0).long()
    return trained(model, lambda: loss(call(numbers(2, 3, 32, 32)), target), 2)


@program("open_clip")
def open_clip(compile: Compile) -> Any:
    from open_clip import CLIP
    from open_clip.loss import ClipLoss

    model = CLIP(
        embed_dim=16,
        vision_cfg={"image_size": 32, "layers": 2, "width": 32, "patch_size": 16, "head_width": 16},
        text_cfg={"context_length": 8, "vocab_size": 64, "width": 32, "heads": 2, "layers": 2},
    )
    call, loss = compile(model), ClipLoss()
    return trained(model, lambda: loss(*call(numbers(2, 3, 32, 32), tokens(2, 8, 64))), 2)


@program("monai")
def medical_network(compile: Compile) -> Any:
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    model = UNet(
        spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1
    )
    call, loss = compile(model), compile(DiceCELoss(to_onehot_y=True, softmax=True))
    target = (numbers(2, 1, 16, 16) > 0).float()
    return trained(model, lambda: loss(call(numbers(2, 1, 16, 16)), target), 2)


@program("neuralop")
def fourier_operator(compile: Compile) -> Any:
    from neuralop.models import FNO

    model = FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
    call = compile(model)
    return trained(model, lambda: call(numbers(1, 1, 16, 16)).pow(2).mean(), 2)


@program("local_attention")
def local_attention(compile: Compile) -> Any:
    from local_attention import LocalAttention

    model = LocalAttention(dim=8, window_size=4, causal=True, look_backward=1, autopad=True)
    call = compile(model)
    return [call(*[numbers(1, 2, n, 8, seed=k) for k in range(3)]) for n in (8, 8, 10)]
