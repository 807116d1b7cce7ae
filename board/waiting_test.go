package board

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"heddle/board/space"
)

func TestNoMoreWaitThanThereIsRoomFor(t *testing.T) {
	who := fresh(t)
	l, err := Open(LocalOptions{File: filepath.Join(t.TempDir(), "board.db"), Key: who.Key(), Limits: space.DefaultLimits(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	waiter := func() *request {
		return &request{ctx: context.Background(), reader: who.Key(), query: space.Query{Template: space.Template{space.String("absent")}}, wait: true}
	}
	for i := range maxWaiting {
		if done := l.do(time.Now(), waiter()); done != nil {
			t.Fatalf("waiter %d is answered %v", i, done[0].result)
		}
	}
	r := waiter()
	if done := l.do(time.Now(), r); len(done) != 1 || done[0] != r || r.result.Status != space.Full {
		t.Errorf("one more is answered %v", r.result)
	}
	l.do(time.Now(), &request{ends: l.waiting[0]})
	if done := l.do(time.Now(), waiter()); done != nil {
		t.Errorf("a place was given up, and the next one is answered %v", done[0].result)
	}
}
