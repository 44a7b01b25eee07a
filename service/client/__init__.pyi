from .database import RemoteDatabase as RemoteDatabase
from .remote import connect as connect
