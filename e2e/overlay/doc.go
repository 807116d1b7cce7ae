// Package overlay tests what overlay nodes promise: who sees whom, and that a grant's limits hold. Tests only.
package overlay
