"""Models that see, of transformers, torchvision and timm."""

from __future__ import annotations

from functools import partial

import timm
import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn

from architectures.training import Training, architecture, images, tokens


def classifier(model: nn.Module, size: int = 64, layout: torch.memory_format = torch.contiguous_format) -> Training:
    """Return the training of a classifier of ten classes, with SGD as is usual for them."""
    model = model.to(memory_format=layout).train()
    pictures, classes = images(size=size).to(memory_format=layout), torch.randint(10, (2,))
    return Training(
        model,
        lambda: F.cross_entropy(model(pictures), classes),
        optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True),
    )


def boxes(masks: bool = False) -> list[dict[str, torch.Tensor]]:
    """Return what is to be found in one picture of 64 by 64."""
    corners, sides = torch.rand(2, 2) * 30, 10 + torch.rand(2, 2) * 20
    found = {"boxes": torch.cat([corners, corners + sides], 1), "labels": torch.randint(1, 5, (2,))}
    return [found | ({"masks": torch.randint(2, (2, 64, 64), dtype=torch.uint8)} if masks else {})]


# Of the thousands of a real detector.
FEW_BOXES = {
    "min_size": 64,
    "max_size": 64,
    "rpn_pre_nms_top_n_train": 60,
    "rpn_post_nms_top_n_train": 6,
    "rpn_batch_size_per_image": 32,
    "box_batch_size_per_image": 4,
}


@architecture("ResNet-50")
def resnet50() -> Training:
    return classifier(torchvision.models.resnet50(num_classes=10))


@architecture("EfficientNet-B0")
def efficientnet() -> Training:
    return classifier(torchvision.models.efficientnet_b0(num_classes=10))


@architecture("DenseNet, 2 layers a block")
def densenet() -> Training:
    return classifier(torchvision.models.DenseNet(16, (2, 2, 2, 2), 32, num_classes=10))


@architecture("Swin: shifted windows")
def swin() -> Training:
    return classifier(
        torchvision.models.SwinTransformer(
            patch_size=[4, 4],
            embed_dim=24,
            depths=[2],
            num_heads=[2],
            window_size=[4, 4],
            stochastic_depth_prob=0.2,
            num_classes=10,
        )
    )


@architecture("ViT")
def vit() -> Training:
    return classifier(
        timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1, embed_dim=64, num_heads=4, num_classes=10)
    )


@architecture("ConvNeXt, channels last")
def convnext() -> Training:
    return classifier(
        timm.create_model("convnext_tiny", depths=(1, 1, 2, 1), dims=(16, 32, 64, 128), num_classes=10),
        layout=torch.channels_last,
    )


@architecture("MLP-Mixer")
def mixer() -> Training:
    return classifier(timm.models.MlpMixer(10, img_size=64, patch_size=16, num_blocks=1, embed_dim=64))


@architecture("SegFormer")
def segformer() -> Training:
    config = transformers.SegformerConfig(
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 32, 48, 64],
        num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=32,
        num_labels=5,
    )
    model = transformers.SegformerForSemanticSegmentation(config).train()
    pictures, classes = images(), torch.randint(5, (2, 64, 64))
    return Training(model, lambda: model(pixel_values=pictures, labels=classes).loss)


@architecture("DeepLabV3 on MobileNetV3")
def deeplab() -> Training:
    model = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
        weights_backbone=None, num_classes=5, aux_loss=True
    ).train()
    pictures, classes = images(), torch.randint(5, (2, 64, 64))

    def loss() -> torch.Tensor:
        made = model(pictures)
        return F.cross_entropy(made["out"], classes) + 0.4 * F.cross_entropy(made["aux"], classes)

    return Training(model, loss)


@architecture("Faster R-CNN on MobileNetV3")
def faster_rcnn() -> Training:
    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights_backbone=None, num_classes=5, **FEW_BOXES
    ).train()
    pictures, found = list(images(batch=1)), boxes()
    return Training(model, lambda: sum(model(pictures, found).values()))


@architecture("Mask R-CNN on ResNet-18")
def mask_rcnn() -> Training:
    backbone = torchvision.models.detection.backbone_utils.resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, trainable_layers=5
    )
    model = torchvision.models.detection.MaskRCNN(backbone, num_classes=5, **FEW_BOXES).train()
    pictures, found = list(images(batch=1)), boxes(masks=True)
    return Training(model, lambda: sum(model(pictures, found).values()))


@architecture("DETR: set prediction")
def detr() -> Training:
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        backbone=None,
        backbone_config=transformers.ResNetConfig(
            embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", out_features=["stage2"]
        ),
        num_queries=8,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        num_labels=5,
    )
    model = transformers.DetrForObjectDetection(config).train()
    pictures = images()
    labels = [{"class_labels": torch.randint(5, (2,)), "boxes": torch.rand(2, 4) * 0.4 + 0.2} for _ in range(2)]
    return Training(model, lambda: model(pixel_values=pictures, labels=labels).loss)


@architecture("CLIP")
def clip() -> Training:
    tower = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.CLIPConfig(
        text_config={**tower, "vocab_size": 128, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2},
        vision_config={**tower, "image_size": 64, "patch_size": 16},
        projection_dim=32,
    )
    model = transformers.CLIPModel(config).train()
    ids, pictures = tokens(), images()
    return Training(model, lambda: model(input_ids=ids, pixel_values=pictures, return_loss=True).loss)
