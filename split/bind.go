package split

import (
	"context"
	"net/netip"

	"golang.zx2c4.com/wireguard/conn"

	"heddle/internal/wgqueue"
	"heddle/path"
)

// bindBatch is how many datagrams pass at once. wireguard-go keeps a buffer of 64 KiB for each.
const bindBatch = 64

// Bind carries the packets of an embedded wireguard-go over the paths of a [Session]. It sends to the session's server and
// ignores endpoints that wireguard-go learns, so that a replayed packet cannot redirect the session.
type Bind struct {
	session  *Session
	up, down *wgqueue.Gate
	joined   *joined // nil if each path has a receiver of its own
}

var _ conn.Bind = (*Bind)(nil)

// NewBind makes a WireGuard bind. Paths become healthy once the server answers on them with the session's keys.
func NewBind(s *Session, k Keys) (*Bind, error) {
	q, err := newQuestioner(k)
	if err != nil {
		return nil, err
	}
	s.setProber(q)
	return &Bind{session: s, up: wgqueue.New(wgqueue.Limit), down: wgqueue.New(wgqueue.Limit)}, nil
}

// Attach sets how the session sends a small packet after a switch, such as wireguard-go's Peer.SendKeepalive.
func (b *Bind) Attach(keepalive func()) { b.session.setNudge(keepalive) }

// Status returns the status of the session.
func (b *Bind) Status() Status { return b.session.Status("wireguard") }

// Open opens the paths. It ignores the port: each path has its own.
func (b *Bind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	if err := b.session.Open(context.Background()); err != nil {
		return nil, 0, err
	}
	if b.session.o.Reorder > 0 {
		b.joined = join(b.session)
		return []conn.ReceiveFunc{b.joined.receiver(b)}, 0, nil
	}
	var receivers []conn.ReceiveFunc
	for i := range b.session.Paths() {
		receivers = append(receivers, b.receiver(i))
	}
	return receivers, 0, nil
}

// Close closes the paths; Open may be called again.
func (b *Bind) Close() error {
	err := b.session.Close()
	if b.joined != nil {
		b.joined.close()
		b.joined = nil
	}
	return err
}

// SetMark does nothing: the paths have their mark from the start.
func (b *Bind) SetMark(uint32) error { return nil }

// BatchSize returns how many datagrams pass at once.
func (b *Bind) BatchSize() int { return bindBatch }

// ParseEndpoint reads the peer's configured address. Packets go to the session's server regardless.
func (b *Bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return &wgqueue.Endpoint{Address: a}, nil
}

// Send sends packets by the paths that the schedule chooses. It counts refused packets, which are no error.
func (b *Bind) Send(packets [][]byte, _ conn.Endpoint) error {
	b.up.Leave(len(packets))
	return b.session.Send(packets)
}

// receiver returns the function by which wireguard-go receives from path i.
func (b *Bind) receiver(i int) conn.ReceiveFunc {
	into := make([]path.Inbound, 4)
	var datagrams, left [][]byte
	from := &wgqueue.Endpoint{}
	return func(packets [][]byte, sizes []int, endpoints []conn.Endpoint) (int, error) {
		b.down.Wait()
		if len(left) == 0 {
			n, err := b.session.Receive(i, into)
			if err != nil {
				return 0, err
			}
			datagrams = path.AppendDatagrams(datagrams[:0], into[:n]...)
			left = datagrams
			if from.Address != into[0].From {
				from = &wgqueue.Endpoint{Address: into[0].From}
			}
		}
		n := b.down.Hand(left, packets, sizes, endpoints, from)
		left = left[n:]
		return n, nil
	}
}
