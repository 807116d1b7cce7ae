package bpfswitch

import (
	"testing"

	"heddle/internal/bpf/bpftest"
)

func TestObjectsAreWhatTheSourceGives(t *testing.T) { bpftest.Generated(t) }

func TestObjectsOfBothByteOrders(t *testing.T) {
	bpftest.Objects(t, "lead", leadProgHeddleLeadIn, leadProgHeddleLeadOut)
}

func TestProgramsLoadWithFewRights(t *testing.T) {
	object, err := loadLead()
	if err != nil {
		t.Fatal(err)
	}
	bpftest.Load(t, object)
}
