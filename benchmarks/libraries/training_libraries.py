"""Trainers, adapters, quantizers and optimizers around a compiled model."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.libraries.registry import Compile, numbers, program, tokens, trained


def llama(layers: int = 2) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
    )


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


@program("transformers")
def trainer(compile: Compile) -> Any:
    from transformers import Trainer, TrainingArguments

    model, data = llama(), [{"input_ids": row, "labels": row} for row in tokens(8, 12, 64)]
    compiled = compile(None) is not None
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=4,
            per_device_train_batch_size=2,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
            torch_compile=compiled,
            torch_compile_backend="eager" if compiled else None,
        )
        result = Trainer(model=model, args=arguments, train_dataset=data).train()
    return [torch.tensor(result.training_loss), [p.detach() for p in model.parameters()]]


@program("transformers")
def generate(compile: Compile) -> Any:
    model = llama().eval()
    model.forward = compile(model.forward)
    prompt = tokens(2, 6, 64)
    return [
        model.generate(
            prompt, max_new_tokens=8, do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(prompt)
        ),
        model.generate(
            prompt,
            max_new_tokens=5,
            num_beams=2,
            do_sample=False,
            pad_token_id=0,
            attention_mask=torch.ones_like(prompt),
        ),
    ]


@program("transformers")
def mixture_of_experts(compile: Compile) -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    model = MixtralForCausalLM(
        MixtralConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            max_position_embeddings=64,
            output_router_logits=True,
        )
    )
    call, ids = compile(model), tokens(2, 8, 64)
    return trained(model, lambda: call(ids, labels=ids).loss)


@program("transformers")
def whisper(compile: Compile) -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=64,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            num_mel_bins=16,
            max_source_positions=20,
            max_target_positions=20,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    )
    call = compile(model)
    return trained(model, lambda: call(input_features=numbers(2, 16, 40), labels=tokens(2, 6, 64)).loss, 2)


@program("accelerate")
def accelerate(compile: Compile) -> Any:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, data = mlp(), torch.utils.data.TensorDataset(numbers(16, 8), numbers(16, 4, seed=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared, optimizer, loader = accelerator.prepare(
        compile(model), optimizer, torch.utils.data.DataLoader(data, batch_size=4)
    )
    losses = []
    for x, y in loader:
        with accelerator.accumulate(prepared):
            loss = functional.mse_loss(prepared(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()))
    return [losses, list(accelerator.unwrap_model(prepared).state_dict().values())]


@program("accelerate")
def accelerate_offload(compile: Compile) -> Any:
    from accelerate import cpu_offload

    model = mlp().eval()
    cpu_offload(model, execution_device=torch.device("cpu"))
    call = compile(model)
    return [call(numbers(3, 8, seed=k)) for k in range(3)]


@program("lightning")
def lightning(compile: Compile) -> Any:
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            loss = functional.mse_loss(self.net(x), y)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    data = torch.utils.data.TensorDataset(numbers(16, 8), numbers(16, 4, seed=1))
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(compile(module), torch.utils.data.DataLoader(data, batch_size=4))
    return [list(module.state_dict().values()), trainer.callback_metrics["train_loss"]]


@program("lightning")
def fabric(compile: Compile) -> Any:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    model = compile(mlp())
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    losses = []
    for k in range(3):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(numbers(4, 8, seed=k)), numbers(4, 4))
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    return [losses, list(model.state_dict().values())]


@program("peft")
def lora(compile: Compile) -> Any:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(llama(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))
    call, ids = compile(model), tokens(2, 8, 64)
    return trained(model, lambda: call(input_ids=ids, labels=ids).loss)


@program("peft")
def adapters(compile: Compile) -> Any:
    from peft import IA3Config, get_peft_model

    model = get_peft_model(llama(), IA3Config(target_modules=["k_proj", "v_proj"], feedforward_modules=[]))
    model.add_adapter("other", IA3Config(target_modules=["k_proj"], feedforward_modules=[]))
    call, ids, found = compile(model), tokens(2, 8, 64), []
    for name in ("default", "other", "default"):
        model.set_adapter(name)
        found.append(call(input_ids=ids).logits.detach())
    return found


@program("torchao")
def int8_weights(compile: Compile) -> Any:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
    quantize_(model, Int8WeightOnlyConfig())
    call = compile(model)
    with torch.no_grad():
        return [call(numbers(4, 64, seed=k)) for k in range(3)]


@program("torchao")
def int8_dynamic(compile: Compile) -> Any:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    call = compile(model)
    with torch.no_grad():
        return [call(numbers(32, 64, seed=k)) for k in range(3)]


@program("lion_pytorch")
def lion(compile: Compile) -> Any:
    from lion_pytorch import Lion

    model = mlp()
    optimizer = Lion(model.parameters(), lr=1e-2)
    step = compile(optimizer.step)
    for k in range(3):
        optimizer.zero_grad()
        functional.mse_loss(model(numbers(4, 8, seed=k)), numbers(4, 4)).backward()
        step()
    return [p.detach() for p in model.parameters()]


@program("schedulefree")
def schedule_free(compile: Compile) -> Any:
    from schedulefree import AdamWScheduleFree

    model = mlp()
    optimizer = AdamWScheduleFree(model.parameters(), lr=1e-2)
    optimizer.train()
    step = compile(optimizer.step)
    for k in range(3):
        optimizer.zero_grad()
        functional.mse_loss(model(numbers(4, 8, seed=k)), numbers(4, 4)).backward()
        step()
    return [p.detach() for p in model.parameters()]


@program("torch_ema")
def moving_average(compile: Compile) -> Any:
    from torch_ema import ExponentialMovingAverage

    model = mlp()
    average = ExponentialMovingAverage(model.parameters(), decay=0.9)
    update = compile(average.update)
    for _ in range(3):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        update()
    return [*average.shadow_params]


@program("ignite")
def ignite(compile: Compile) -> Any:
    from ignite.engine import create_supervised_trainer

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = create_supervised_trainer(compile(model), optimizer, functional.mse_loss)
    state = engine.run([(numbers(4, 8, seed=k), numbers(4, 4)) for k in range(4)], max_epochs=2)
    return [torch.tensor(state.output), [p.detach() for p in model.parameters()]]


@program("skorch")
def skorch(compile: Compile) -> Any:
    from skorch import NeuralNetRegressor

    model = mlp()
    net = NeuralNetRegressor(compile(model), max_epochs=2, lr=0.1, verbose=0, train_split=None)
    net.fit(numbers(16, 8), numbers(16, 4))
    return torch.from_numpy(net.predict(numbers(4, 8)))


@program("optuna")
def search(compile: Compile) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    values = []

    def objective(trial: Any) -> float:
        torch.manual_seed(1)
        width, drop = trial.suggest_int("width", 4, 16), trial.suggest_float("drop", 0.0, 0.4)
        model = nn.Sequential(nn.Linear(8, width), nn.Dropout(drop), nn.Linear(width, 4))
        call = compile(model)
        values.append(
            trained(model, lambda: functional.mse_loss(call(numbers(4, 8)), numbers(4, 4)), 2)[0][-1]
        )
        return float(values[-1])

    optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).optimize(objective, n_trials=4)
    return values
