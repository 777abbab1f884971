"""Small trained models that come with Pellucid, each a folder with a card; opened as `Model.load("zoo:NAME")`."""

from pellucid.zoo.cards import Card, Score, card, models, path, verify

__all__ = ["Card", "Score", "card", "models", "path", "verify"]
