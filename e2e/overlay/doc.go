// Package overlay proves in worlds what overlay nodes promise: who sees whom, and that a grant's limits hold. It holds tests
// only.
//
// Do not import it.
package overlay
