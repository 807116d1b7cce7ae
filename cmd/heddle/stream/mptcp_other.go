//go:build !linux

package stream

import (
	"context"
	"net"
	"net/netip"

	"heddle/config"
	"heddle/internal/errhint"
	"heddle/stripe"
)

var errMPTCP = errhint.NeedsLinux("MPTCP", "leave out --backend")

func dialKernel(context.Context, config.Stripe, stripe.Options, netip.AddrPort) (Session, error) {
	return nil, errMPTCP
}

func listenMPTCP(l net.Listener, _ stripe.ListenOptions) (listener[Session], error) {
	l.Close()
	return nil, errMPTCP
}
