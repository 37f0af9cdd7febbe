"""What both ends share; and itself: plug-ins, extras, how the packages of an installation find each other."""
