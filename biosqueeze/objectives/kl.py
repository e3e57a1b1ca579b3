"""Output distillation: Kullback-Leibler divergence between softened distributions (compact-transformers, equation 2).

The paper writes D(student || teacher); its published code, like DistilBERT's (Sanh et al. 2019), computes what is meant
here: D(teacher || student), whose gradient is that of a cross entropy with soft labels.
"""

from torch import Tensor
from torch.nn import functional

from biosqueeze.objectives import Signals

KINDS = ("mlm", "task")
NEEDS_TEACHER_LOGITS = True


def loss(signals: Signals) -> Tensor:
    """Mean over rows of D(teacher || student) at the temperature, times its square (Hinton et al. 2015). Scalar."""
    if signals.teacher_logits is None:
        raise ValueError("kl needs the teacher's logits")
    heat = signals.temperature
    student = functional.log_softmax(signals.student_logits.float() / heat, dim=-1)  # (rows, classes)
    teacher = functional.log_softmax(signals.teacher_logits.float() / heat, dim=-1)  # (rows, classes)
    return functional.kl_div(student, teacher, reduction="batchmean", log_target=True) * heat**2
