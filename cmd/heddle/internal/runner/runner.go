// Package runner runs what lives until it is interrupted, under a name that `heddle status` and `heddle down` know.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"heddle/cmd/heddle/internal/control"
	"heddle/split"
)

// Run runs body under a name that `heddle status` and `heddle down` know, as one of the kinds of package control.
func Run(ctx context.Context, name, kind string, status func() any, body func(context.Context) error) error {
	server, err := control.Listen(name)
	if err != nil {
		return err
	}
	return answering(ctx, server, kind, status, body)
}

// RunBeside is [Run] for what may run several times: one whose name is taken adds its process's number, and
// says so.
func RunBeside(ctx context.Context, name, kind string, status func() any, talk io.Writer, body func(context.Context) error) error {
	server, err := control.Listen(name)
	if _, running := errors.AsType[*control.RunningError](err); running {
		beside := fmt.Sprintf("%s-%d", name, os.Getpid())
		if another, failed := control.Listen(beside); failed == nil {
			fmt.Fprintf(talk, "%v: heddle status and heddle down know this one as %s\n", err, beside)
			server, err = another, nil
		}
	}
	if err != nil {
		return err
	}
	return answering(ctx, server, kind, status, body)
}

// RunShown is [Run] for what has to run also where another has the name, or where sockets cannot be made.
func RunShown(ctx context.Context, name, kind string, status func() any, talk io.Writer, body func(context.Context) error) error {
	server, err := control.Listen(name)
	if err != nil {
		fmt.Fprintln(talk, "warning: heddle status will not show it:", err)
		return body(ctx)
	}
	return answering(ctx, server, kind, status, body)
}

func answering(ctx context.Context, server *control.Server, kind string, status func() any, body func(context.Context) error) error {
	defer server.Close()
	server.Answers(kind, status)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answered := make(chan error, 1)
	go func() { answered <- server.Serve(ctx, func() []split.Status { return nil }, stop) }()
	err := body(ctx)
	stop()
	return errors.Join(err, <-answered)
}
