package path

import "context"

type sessionKey struct{}

// WithSession says, to a path whose flow is opened with the context, which session the flow is of. Flows of one session
// that leave by one exit may be joined there.
func WithSession(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, sessionKey{}, id)
}

// SessionOf gives what WithSession said, or "".
func SessionOf(ctx context.Context) string {
	id, _ := ctx.Value(sessionKey{}).(string)
	return id
}

type orderKey struct{}

// WithOrder asks a path whose flow is opened with the context to tell the order of what arrives by several flows of the
// session, where it can: see [Inbound].
func WithOrder(ctx context.Context) context.Context { return context.WithValue(ctx, orderKey{}, true) }

// WantsOrder reports whether WithOrder asked.
func WantsOrder(ctx context.Context) bool {
	wants, _ := ctx.Value(orderKey{}).(bool)
	return wants
}

type earlyKey struct{}

// WithEarly lets a [Dialer] return before the far end has answered, where what it goes through lets the first bytes
// follow at once: that saves a round trip. Whether the far end was reached is then known from the first Read.
func WithEarly(ctx context.Context) context.Context { return context.WithValue(ctx, earlyKey{}, true) }

// WantsEarly reports whether WithEarly asked.
func WantsEarly(ctx context.Context) bool {
	wants, _ := ctx.Value(earlyKey{}).(bool)
	return wants
}
