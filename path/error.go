package path

import "heddle/internal/errhint"

// Error is a failure with what, why and a hint for the person at the keyboard.
type Error = errhint.Error
