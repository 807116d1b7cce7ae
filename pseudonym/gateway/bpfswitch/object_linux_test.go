package bpfswitch

import (
	"testing"

	"heddle/internal/bpf/bpftest"
)

func TestObjectsAreWhatTheSourceGives(t *testing.T) { bpftest.Generated(t) }

func TestObjectsOfBothByteOrders(t *testing.T) {
	bpftest.Objects(t, "lead", leadProgHeddleLeadIn, leadProgHeddleLeadOut)
}
