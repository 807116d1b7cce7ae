package space

import "fmt"

// Remembered gives what an operation came to, where it was done not longer ago than [Limits.Slack].
func (s *Space) Remembered(id ID) (Result, bool) {
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
