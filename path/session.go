package path

import "context"

type sessionKey struct{}

// WithSession names the session of a flow that is opened with the context. An exit may join flows of one session.
func WithSession(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, sessionKey{}, id)
}

// SessionOf returns the session of [WithSession], or "".
func SessionOf(ctx context.Context) string {
	id, _ := ctx.Value(sessionKey{}).(string)
	return id
}

type orderKey struct{}

// WithOrder requests, for a flow that is opened with the context, the order across the flows of the session: see [Inbound].
func WithOrder(ctx context.Context) context.Context { return context.WithValue(ctx, orderKey{}, true) }

func WantsOrder(ctx context.Context) bool {
	wants, _ := ctx.Value(orderKey{}).(bool)
	return wants
}

type earlyKey struct{}

// WithEarly lets a [Dialer] return before the far end has answered, if data may follow at once. That saves a round trip. The
// first Read then shows whether the far end was reached.
func WithEarly(ctx context.Context) context.Context { return context.WithValue(ctx, earlyKey{}, true) }

func WantsEarly(ctx context.Context) bool {
	wants, _ := ctx.Value(earlyKey{}).(bool)
	return wants
}
