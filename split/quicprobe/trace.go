package quicprobe

import (
	"context"
	"sync"
	"time"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"heddle/internal/netutil"
)

// recorder keeps the server's transport parameters and connection ids from qlog: quic-go exposes them nowhere else.
type recorder struct {
	mu         sync.Mutex
	parameters *qlog.ParametersSet
	ids        map[uint64]int // sequence number -> length in bytes
	retry      bool
	sent       qlog.PacketNumber // largest 1-RTT packet sent, and largest that the server acknowledged
	acked      qlog.PacketNumber
	idLimit    uint64        // connection ids that the client takes
	confirmed  bool          // the server confirmed the handshake
	heard      chan struct{} // signals an acknowledgement, a connection id or the confirmation
}

func newRecorder() *recorder { return &recorder{heard: make(chan struct{}, 1)} }

func (r *recorder) trace(context.Context, bool, qlogwriter.ConnectionID) qlogwriter.Trace { return r }

// AddProducer makes r a trace of its own.
func (r *recorder) AddProducer() qlogwriter.Recorder { return r }

// Close does nothing: what was recorded stays.
func (r *recorder) Close() error { return nil }

// maxConnectionIDs bounds how many connection ids are remembered.
const maxConnectionIDs = 256

// maxPayload is the largest UDP payload, and the default of a silent server (RFC 9000, section 18.2).
const maxPayload = 65527

// RecordEvent keeps the events of interest.
func (r *recorder) RecordEvent(e qlogwriter.Event) {
	switch e := e.(type) {
	case qlog.ParametersSet:
		r.mu.Lock()
		if e.Initiator == qlog.InitiatorRemote {
			r.parameters = &e
		} else {
			r.idLimit = e.ActiveConnectionIDLimit
		}
		r.mu.Unlock()
	case qlog.PacketReceived:
		r.packet(e)
	case qlog.PacketSent:
		if e.Header.PacketType == qlog.PacketType1RTT {
			r.mu.Lock()
			r.sent = max(r.sent, e.Header.PacketNumber)
			r.mu.Unlock()
		}
	}
}

func (r *recorder) packet(e qlog.PacketReceived) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Header.PacketType == qlog.PacketTypeRetry {
		r.retry = true
	}
	for _, f := range e.Frames {
		if ack, ok := f.Frame.(*qlog.AckFrame); ok && e.Header.PacketType == qlog.PacketType1RTT && ack.LargestAcked() > r.acked {
			r.acked = ack.LargestAcked()
			r.wake()
		}
		if id, ok := f.Frame.(*qlog.NewConnectionIDFrame); ok && len(r.ids) < maxConnectionIDs {
			if r.ids == nil {
				r.ids = map[uint64]int{}
			}
			r.ids[id.SequenceNumber] = id.ConnectionID.Len()
			r.wake()
		}
		if _, ok := f.Frame.(*qlog.HandshakeDoneFrame); ok {
			r.confirmed = true
			r.wake()
		}
	}
}

func (r *recorder) wake() { netutil.Offer(r.heard, struct{}{}) }

// awaitIDs waits until the server has given as many connection ids as the client takes. Many servers give fewer.
func (r *recorder) awaitIDs(ctx context.Context, within time.Duration) {
	await(ctx, within, r.heard, func() bool {
		_, ids, _ := r.server()
		r.mu.Lock()
		defer r.mu.Unlock()
		return uint64(ids.Given) >= r.idLimit
	})
}

// confirms waits until the server has confirmed the handshake (RFC 9001, section 4.1.2), and reports whether it did in time.
func (r *recorder) confirms(ctx context.Context, within time.Duration) bool {
	return await(ctx, within, r.heard, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.confirmed
	})
}

// hears waits until the server acknowledges what was sent from now on, and reports whether it did in time. Packets from the
// server prove less: it may send on to a client that it no longer hears.
func (r *recorder) hears(ctx context.Context, within time.Duration) bool {
	progress := func() (sent, acked qlog.PacketNumber) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.sent, r.acked
	}
	sent, _ := progress()
	return await(ctx, within, r.heard, func() bool {
		_, acked := progress()
		return acked > sent
	})
}

// server returns the server's parameters, nil before the handshake, and the connection ids that it gave.
func (r *recorder) server() (parameters *Parameters, ids ConnectionIDs, retry bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parameters == nil {
		return nil, ConnectionIDs{}, r.retry
	}
	e := r.parameters
	parameters = &Parameters{DisableActiveMigration: e.DisableActiveMigration, ActiveConnectionIDLimit: e.ActiveConnectionIDLimit,
		MaxIdleTimeout: e.MaxIdleTimeout, MaxUDPPayloadSize: min(int64(e.MaxUDPPayloadSize), maxPayload)}
	ids = ConnectionIDs{Given: 1 + len(r.ids), Length: e.InitialSourceConnectionID.Len()}
	if e.PreferredAddress != nil {
		parameters.PreferredAddress = &PreferredAddress{}
		if a := e.PreferredAddress.IPv4; a.IsValid() && a.Port() != 0 {
			parameters.PreferredAddress.IPv4 = a.String()
		}
		if a := e.PreferredAddress.IPv6; a.IsValid() && a.Port() != 0 {
			parameters.PreferredAddress.IPv6 = a.String()
		}
		if _, again := r.ids[1]; !again {
			ids.Given++ // that of the preferred address has sequence number 1 (RFC 9000, section 5.1.1)
		}
	}
	return parameters, ids, r.retry
}
