package mutual

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/internal/tlsbatch"
	"heddle/pseudonym"
)

// handshakeFor bounds a handshake.
const handshakeFor = 10 * time.Second

// held is the connection below TLS.
type held struct {
	tlsbatch.Out
	from  *Server
	label pseudonym.Label // empty until the handshake succeeded; from.mu guards it
	once  sync.Once
	ended context.CancelFunc
}

// Close forgets the connection.
func (h *held) Close() error {
	h.once.Do(func() {
		h.ended()
		h.from.mu.Lock()
		defer h.from.mu.Unlock()
		delete(h.from.conns[h.label], h)
		if len(h.from.conns[h.label]) == 0 {
			delete(h.from.conns, h.label)
		}
	})
	return h.Conn.Close()
}

// Below returns what is below the TLS of a connection of a [Server].
func Below(c *tls.Conn) *tlsbatch.Out { return &c.NetConn().(*held).Out }

// Serve takes connections until ctx ends. It passes those whose handshake succeeded to handle, in a goroutine of its own, which has to
// close them. They also end when their pseudonym does. places bounds what strangers take.
func (s *Server) Serve(ctx context.Context, l net.Listener, places *connlimit.Places, handle func(*tls.Conn, *Entry)) error {
	config := s.Config()
	return netutil.Serve(ctx, l, func(raw net.Conn) {
		go func() {
			place := places.Enter(raw)
			ctx, ended := context.WithCancel(ctx)
			h := &held{Out: tlsbatch.Out{Conn: place}, from: s, ended: ended}
			c := tls.Server(h, config)
			e, err := s.admit(ctx, c, h)
			if err != nil {
				c.Close()
				return
			}
			go s.expire(ctx, h, e)
			place.Proved()
			handle(c, e.Entry)
		}()
	})
}

// admit makes the handshake, and notes the connection.
func (s *Server) admit(ctx context.Context, c *tls.Conn, h *held) (*loaded, error) {
	bounded, cancel := context.WithTimeout(ctx, handshakeFor)
	defer cancel()
	if err := c.HandshakeContext(bounded); err != nil {
		return nil, err
	}
	l, ok := s.zone.Label(c.ConnectionState().ServerName)
	if !ok {
		return nil, errName
	}
	s.mu.Lock()
	h.label = l
	if s.conns[l] == nil {
		s.conns[l] = map[*held]bool{}
	}
	s.conns[l][h] = true
	s.mu.Unlock()
	// It may have been revoked during the handshake, when [Server.Forget] did not see the connection.
	return s.load(ctx, l)
}

// expire closes a connection when its pseudonym ends, also if the source cannot say whether it was renewed. It returns when ctx has ended.
func (s *Server) expire(ctx context.Context, h *held, e *loaded) {
	for netutil.Sleep(ctx, e.ends.Sub(s.now())) == nil {
		one, err := s.load(ctx, e.Label)
		if err != nil {
			h.Close()
			return
		}
		e = one
	}
}

// Live returns how many connections are open.
func (s *Server) Live() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.conns {
		n += len(open)
	}
	return n
}

// Listener returns a listener whose connections have made their handshake, for an [net/http.Server]. Its Close ends l.
func (s *Server) Listener(ctx context.Context, l net.Listener, places *connlimit.Places) net.Listener {
	ctx, end := context.WithCancel(ctx)
	ready := &readyListener{Listener: l, conns: make(chan net.Conn), ctx: ctx, end: end}
	go func() {
		defer end()
		_ = s.Serve(ctx, l, places, func(c *tls.Conn, _ *Entry) {
			select {
			case ready.conns <- c:
			case <-ctx.Done():
				c.Close()
			}
		})
	}()
	return ready
}

type readyListener struct {
	net.Listener
	conns chan net.Conn
	ctx   context.Context
	end   context.CancelFunc
}

func (l *readyListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *readyListener) Close() error {
	l.end()
	return nil
}
