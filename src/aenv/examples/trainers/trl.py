"""A step of TRL's GRPOTrainer: four episodes of one problem, their rewards, and the update.

The model is tiny and untrained; so that it calls tools at all, what it says is a script.
"""

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from aenv.examples.agents import framework
from aenv.examples.trainers import NAME, OPTIONS

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # or it warns that `environment_factory` is experimental
with framework("TRL", "trl>=1.16", "jmespath"):
    import torch
    import trl
    from datasets import Dataset
    from transformers import PrinterCallback, Qwen3Config, Qwen3ForCausalLM

    from aenv.examples.trainers.scripted_model import answer, tokenizer
    from aenv.integrations.trl import environment_class, rows

TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
TOKENS = tokenizer(TEMPLATE.read_text(), ("<tool_response>", "</tool_response>", "<think>", "</think>"))
SIZE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 16}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2}
STEP = {"per_device_train_batch_size": 4, "num_generations": 4, "max_steps": 1, "learning_rate": 0.1}
QUIET = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}


class Scripted(Qwen3ForCausalLM):
    """Tries another sign in each episode. Log-probabilities and the update are the trainer's own."""

    def generate(self, input_ids: Any, **options: Any) -> Any:
        texts = [answer(TOKENS.decode(ids), sign) for ids, sign in zip(input_ids, "+-*/", strict=False)]
        said = TOKENS(texts, padding=True, padding_side="right", return_tensors="pt")
        return torch.cat([input_ids, said["input_ids"]], dim=1)


def main() -> None:
    warnings.simplefilter("ignore", FutureWarning)  # of names that transformers has deprecated and TRL uses
    torch.set_num_threads(1)
    model = Scripted(Qwen3Config(vocab_size=len(TOKENS), eos_token_id=TOKENS.eos_token_id, **SIZE, **HEADS))
    before = model.model.embed_tokens.weight.detach().clone()
    with tempfile.TemporaryDirectory(prefix="aenv-trl-") as folder:
        trainer = trl.GRPOTrainer(
            model,
            args=trl.GRPOConfig(folder, max_completion_length=256, use_cpu=True, **STEP, **QUIET),
            processing_class=TOKENS,
            train_dataset=Dataset.from_list(rows(NAME, limit=1, **OPTIONS)),
            environment_factory=environment_class(NAME, **OPTIONS),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    logged = next(line for line in trainer.state.log_history if "reward" in line)
    calls, failures = logged["tools/call_frequency"], logged["tools/failure_frequency"]
    print(f"four episodes of {calls:g} tool calls each, of which {failures:g} failed")
    has_learned = not torch.equal(before, model.model.embed_tokens.weight)
    print(
        f"mean reward {logged['reward']:g}; the step has {'changed' if has_learned else 'not changed'} the model"
    )


if __name__ == "__main__":
    main()
