package reliable

import "testing"

func TestBudget(t *testing.T) {
	b := NewBudget(100)
	one, other := b.Loan(), b.Loan()
	if !one.Take(60) || other.Take(41) || !other.Take(40) || one.Take(1) {
		t.Error("not as much as there is")
	}
	other.Return(50) // it has 40
	if one.Take(41) || !one.Take(40) {
		t.Error("not as much as came back")
	}
	one.End()
	one.Return(10)
	if one.Take(1) || other.Take(101) || !other.Take(100) {
		t.Error("not all came back at the end")
	}
	if none := (*Loan)(nil); !none.Take(1 << 60) {
		t.Error("a stream without a budget has no limit")
	}
}

// A sender holds little until it may take more, and returns that when it rests.
func TestSenderAsksForMemory(t *testing.T) {
	b := NewBudget(50)
	memory := b.Loan()
	s := NewByteSender(ByteSenderOptions{Buffer: 100, Least: 20, Unsent: 1000, Credit: 1000, Parts: 100, Memory: memory})
	if n := s.Write(stream(15)); n != 15 || memory.bytes != 0 {
		t.Errorf("%d bytes written, %d taken", n, memory.bytes)
	}
	if n := s.Write(stream(500)); n != 25 || memory.bytes != 20 { // 40 would be the next step, and 10 bytes too many
		t.Errorf("%d bytes written, %d taken", n, memory.bytes)
	}
	b.left += 40
	if n := s.Write(stream(500)); n != 60 || memory.bytes != 80 {
		t.Errorf("%d bytes written, %d taken", n, memory.bytes)
	}
	f := s.NewFlight()
	fills(s, f, 100)
	if err := s.Acked(100, 1000, nil); err != nil {
		t.Fatal(err)
	}
	if s.Rest(); memory.bytes != 0 || b.left != 90 {
		t.Errorf("%d bytes are still taken, %d are left", memory.bytes, b.left)
	}
	if n := s.Write(stream(500)); n != 100 {
		t.Errorf("%d bytes written after a rest", n)
	}
}
