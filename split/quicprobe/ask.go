package quicprobe

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"heddle/path"
)

// errSilent means that no answer came in time.
var errSilent = errors.New("no answer")

// ask sends a question over a flow, up to once per wait, until read accepts an answer. It closes the flow.
func ask[T any](ctx context.Context, p *prober, flow path.Flow, to netip.AddrPort, question []byte, waits []time.Duration, read func([]byte) (T, error)) (T, error) {
	defer flow.Close()
	var none T
	var stranger path.Stranger
	answers, failed := make(chan T, 1), make(chan error, 1)
	go func() {
		into := make([]path.Inbound, 1)
		for {
			n, err := flow.Receive(into)
			if err != nil {
				failed <- err
				return
			}
			for _, in := range into[:n] {
				p.meter.add(len(in.Data), &p.meter.received)
				if !stranger.Expected(in.From, to) {
					continue
				}
				if answer, err := read(in.Data[:min(in.Size, len(in.Data))]); err == nil {
					answers <- answer
					return
				}
			}
		}
	}()
	for _, wait := range waits {
		p.meter.add(len(question), &p.meter.sent)
		if _, err := flow.Send([][]byte{question}); err != nil {
			return none, err
		}
		select {
		case answer := <-answers:
			return answer, nil
		case err := <-failed:
			return none, err
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	return none, &path.Error{What: to.String(), Hint: stranger.Hint(), Err: errSilent}
}
