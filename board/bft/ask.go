package bft

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"heddle/board"
)

// AskStatus asks the running replica in dir for its status, with the replica's own key.
func AskStatus(ctx context.Context, dir string) (board.Status, Detail, error) {
	return askStatus(ctx, dir, nil)
}

func askStatus(ctx context.Context, dir string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (board.Status, Detail, error) {
	h, err := openHome(dir)
	if err != nil {
		return board.Status{}, Detail{}, err
	}
	host, port, err := net.SplitHostPort(h.settings.Listen)
	if err != nil {
		return board.Status{}, Detail{}, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	own := board.Replica{Key: h.identity.Key(), Address: net.JoinHostPort(host, port)}
	client, err := board.NewClient(board.ClientOptions{Reference: board.Reference{Space: h.genesis.Name, Replicas: []board.Replica{own}}, Identity: h.identity, Dial: dial})
	if err != nil {
		return board.Status{}, Detail{}, err
	}
	defer client.Close()
	answer := client.Status(ctx)[0]
	if answer.Status == nil {
		return board.Status{}, Detail{}, errors.New(answer.Error)
	}
	var detail Detail
	raw, err := json.Marshal(answer.Status.Detail)
	if err == nil {
		err = json.Unmarshal(raw, &detail)
	}
	return *answer.Status, detail, err
}
