"""The ground: what coordinator and workers share. Imports none of the other rooms."""
