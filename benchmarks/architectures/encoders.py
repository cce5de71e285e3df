"""Text and speech models that encode, and those that encode and decode, of transformers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers

from architectures.decoders import SIZES
from architectures.training import Training, architecture, tokens


def masked(model: type[transformers.PreTrainedModel], config: Any, **options: Any) -> Training:
    """Return the training of a model that predicts masked tokens; the second text is shorter and padded."""
    made = model(config(**{**SIZES, **options})).train()
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return Training(made, lambda: made(input_ids=ids, attention_mask=mask, labels=ids).loss)


@architecture("BERT")
def bert() -> Training:
    return masked(transformers.BertForMaskedLM, transformers.BertConfig)


@architecture("ALBERT: one layer used twice")
def albert() -> Training:
    return masked(transformers.AlbertForMaskedLM, transformers.AlbertConfig, embedding_size=32, num_hidden_layers=2)


@architecture("DeBERTa-v2: disentangled attention")
def deberta() -> Training:
    return masked(transformers.DebertaV2ForMaskedLM, transformers.DebertaV2Config, relative_attention=True)


@architecture("ELECTRA, Adagrad")
def electra() -> Training:
    training = masked(transformers.ElectraForMaskedLM, transformers.ElectraConfig, embedding_size=32)
    return replace(training, optimizer=partial(torch.optim.Adagrad, lr=1e-2, foreach=True))


@architecture("T5, Adafactor")
def t5() -> Training:
    config = transformers.T5Config(
        vocab_size=128, d_model=64, d_kv=16, d_ff=128, num_layers=1, num_heads=4, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).train()
    ids, labels = tokens(), tokens(length=6)
    return Training(
        model,
        lambda: model(input_ids=ids, labels=labels).loss,
        optimizer=partial(torch.optim.Adafactor, lr=1e-2, foreach=True),
    )


@architecture("BART")
def bart() -> Training:
    config = transformers.BartConfig(
        vocab_size=128,
        max_position_embeddings=64,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    )
    model = transformers.BartForConditionalGeneration(config).train()
    ids, labels = tokens(), tokens(length=6)
    return Training(model, lambda: model(input_ids=ids, labels=labels).loss)


@architecture("Whisper")
def whisper() -> Training:
    config = transformers.WhisperConfig(
        vocab_size=128,
        num_mel_bins=16,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=32,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = transformers.WhisperForConditionalGeneration(config).train()
    features, labels = torch.randn(2, 16, 64), tokens(length=6)
    return Training(model, lambda: model(input_features=features, labels=labels).loss)


@architecture("wav2vec 2.0 with CTC")
def wav2vec2() -> Training:
    config = transformers.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=128,
        conv_dim=(32, 32, 32),
        conv_stride=(5, 4, 2),
        conv_kernel=(10, 8, 4),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        mask_time_length=2,
    )
    model = transformers.Wav2Vec2ForCTC(config).train()
    sound, labels = torch.randn(2, 3200), tokens(length=6, vocabulary=32)
    return Training(model, lambda: model(input_values=sound, labels=labels).loss)


@architecture("PatchTST: forecasts of time series")
def patch_tst() -> Training:
    config = transformers.PatchTSTConfig(
        num_input_channels=3,
        context_length=64,
        prediction_length=16,
        patch_length=8,
        patch_stride=8,
        d_model=32,
        num_attention_heads=4,
        num_hidden_layers=1,
        ffn_dim=64,
    )
    model = transformers.PatchTSTForPrediction(config).train()
    past, future = torch.randn(2, 64, 3), torch.randn(2, 16, 3)
    return Training(model, lambda: model(past_values=past, future_values=future).loss)
