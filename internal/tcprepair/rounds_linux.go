package tcprepair

import "sync"

// rounds lets callers share what takes milliseconds and a thread.
type rounds struct {
	do      func()
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
		r.mu.Lock()
		ended := r.next
		r.next, r.running = nil, ended != nil
		r.mu.Unlock()
		if ended == nil {
			return
		}
		r.do()
		close(ended)
	}
}
