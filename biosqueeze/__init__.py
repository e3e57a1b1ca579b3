"""biosqueeze: biomedical encoders, smaller and faster."""

__version__ = "0.1.0"
