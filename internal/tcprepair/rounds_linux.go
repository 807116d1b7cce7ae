package tcprepair

import (
	"sync"
	"time"
)

// rounds lets callers share what takes milliseconds and a thread. While a thread of Go waits in the kernel, the runtime looks after it every 20
// microseconds for some milliseconds, so rounds have pauses.
type rounds struct {
	do      func()
	pause   time.Duration // before each round
	mu      sync.Mutex
	next    chan struct{} // closed after the round that has not begun yet; nil if nobody waits for it
	running bool
}

// wait returns after a round that began after the call.
func (r *rounds) wait() {
	r.mu.Lock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
	ended := r.next
	if !r.running {
		r.running = true
		go r.run()
	}
	r.mu.Unlock()
	<-ended
}

// run runs rounds while somebody waits.
func (r *rounds) run() {
	for {
		time.Sleep(r.pause)
		r.mu.Lock()
		ended := r.next
		r.next = nil
		r.mu.Unlock()
		r.do()
		close(ended)
		r.mu.Lock()
		r.running = r.next != nil
		running := r.running
		r.mu.Unlock()
		if !running {
			return
		}
	}
}
