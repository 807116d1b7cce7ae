package space

import "fmt"

// Done gives what an operation came to, where it was done and is still remembered; see [Limits.Slack].
func (s *Space) Done(id ID) (Result, bool) {
	done := s.memory[id]
	if done == nil {
		return Result{}, false
	}
	result, err := DecodeResult(done.result)
	if err != nil {
		panic(fmt.Sprintf("space: a remembered result does not decode: %v", err)) // it was encoded here
	}
	return result, true
}
