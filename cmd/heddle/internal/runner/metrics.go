package runner

import (
	"context"
	"net"

	"heddle/cmd/heddle/internal/control"
	"heddle/internal/metrics"
)

// Metrics returns what serves a status to Prometheus. The names of metrics are those of `heddle status --json`.
func Metrics(status func() control.Status) func(context.Context, net.Listener) error {
	h := metrics.Handler("heddle", func() any { return status() })
	return func(ctx context.Context, l net.Listener) error { return metrics.Serve(ctx, l, h) }
}
