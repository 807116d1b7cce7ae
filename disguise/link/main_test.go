package link

import (
	"testing"

	"heddle/internal/cputest"
)

func TestMain(m *testing.M) { cputest.Simulated(m) }
