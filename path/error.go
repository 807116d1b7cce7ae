package path

import "heddle/internal/errhint"

// Error is an error for people: what failed, why, and a hint.
type Error = errhint.Error
