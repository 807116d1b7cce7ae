package split

import (
	"bytes"
	"net"
	"sync"

	"golang.zx2c4.com/wireguard/conn"

	"heddle/internal/wgqueue"
	"heddle/path"
)

// joinedLimit is how many datagrams may wait for wireguard-go before reading pauses.
const joinedLimit = 4 * bindBatch

// joined holds the datagrams of all paths in order. wireguard-go keeps order only within one receiver.
type joined struct {
	mu     sync.Mutex
	change sync.Cond // datagrams were added or taken, or it was closed
	queue  [][]byte
	closed bool
	work   sync.WaitGroup // readers of the paths
}

// join reads all paths of a session through a reorderer until the session is closed.
func join(s *Session) *joined {
	j := &joined{}
	j.change.L = &j.mu
	order := newReorderer(s.o.Reorder, s.Paths(), j.put)
	for i := range s.Paths() {
		j.work.Go(func() {
			into := make([]path.Inbound, 4)
			for j.room() {
				n, err := s.Receive(i, into)
				if err != nil {
					return // it is closed
				}
				order.arrived(i, into[:n])
			}
		})
	}
	return j
}

// receiver returns the one function by which wireguard-go receives from all paths.
func (j *joined) receiver(b *Bind) conn.ReceiveFunc {
	from := &wgqueue.Endpoint{}
	return func(packets [][]byte, sizes []int, endpoints []conn.Endpoint) (int, error) {
		b.down.Wait()
		n := j.take(func(datagrams [][]byte) int {
			if server := *b.session.server.Load(); from.Address != server {
				from = &wgqueue.Endpoint{Address: server}
			}
			return b.down.Hand(datagrams, packets, sizes, endpoints, from)
		})
		if n == 0 {
			return 0, net.ErrClosed
		}
		return n, nil
	}
}

// put appends copies of datagrams. It does not wait, since the reorderer holds a bounded number.
func (j *joined) put(datagrams [][]byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range datagrams {
		if !j.closed {
			j.queue = append(j.queue, bytes.Clone(d))
		}
	}
	j.change.Broadcast()
}

// room waits until the queue is below the limit. It returns false once closed.
func (j *joined) room() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.queue) >= joinedLimit && !j.closed {
		j.change.Wait()
	}
	return !j.closed
}

// take waits for datagrams and lets give take the first ones. It returns their number, or 0 once closed.
func (j *joined) take(give func([][]byte) int) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.queue) == 0 && !j.closed {
		j.change.Wait()
	}
	if j.closed {
		return 0
	}
	n := give(j.queue)
	clear(j.queue[:n])
	if j.queue = j.queue[n:]; len(j.queue) == 0 {
		j.queue = nil
	}
	j.change.Broadcast()
	return n
}

// close ends the queue after the session was closed, and waits for the readers.
func (j *joined) close() {
	j.mu.Lock()
	j.closed = true
	j.change.Broadcast()
	j.mu.Unlock()
	j.work.Wait()
}
