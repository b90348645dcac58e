package apitest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"kith.dev/daemon/localapi"
)

// Serve serves b at a socket of its own until the test ends.
func Serve(t testing.TB, b localapi.Backend, events *localapi.Broker) (socket string) {
	t.Helper()
	return ServeWith(t, b, events, nil)
}

// ServeWith is Serve with a page.
func ServeWith(t testing.TB, b localapi.Backend, events *localapi.Broker, page localapi.Page) (socket string) {
	t.Helper()
	// Not t.TempDir: a test's name in the path would exceed the 108 bytes of a socket address.
	dir, err := os.MkdirTemp("", "kith")
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "kith.sock")
	server := localapi.New(localapi.Options{
		Socket: socket, Backend: b, Events: events, Page: page, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("server: %v", err)
		}
		os.RemoveAll(dir)
	})
	return socket
}
