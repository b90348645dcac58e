package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatIsWantedOutlivesARestartOfTheAPIServer(t *testing.T) {
	url := func(err error) error { return &url.Error{Op: "Patch", URL: "https://127.0.0.1:6443/x", Err: err} }
	for _, c := range []struct {
		name  string
		err   error
		tries int
	}{
		{"it hangs up", url(io.ErrUnexpectedEOF), 3},
		{"before it answers", url(io.EOF), 3},
		{"it does not listen", url(syscall.ECONNREFUSED), 3},
		{"its socket is closed", url(fmt.Errorf("read tcp: %w", syscall.ECONNRESET)), 3},
		{"it says no", apierrors.NewForbidden(schema.GroupResource{Resource: "peers"}, "bob", errors.New("no")), 1},
		{"somebody else wrote", apierrors.NewConflict(schema.GroupResource{Resource: "peers"}, "bob", errors.New("changed")), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := throughRestart(t.Context(), func() error {
					if tries++; tries == 3 {
						return nil
					}
					return c.err
				})
				if tries != c.tries || (c.tries == 3) != (err == nil) {
					t.Errorf("%d tries, want %d: %v", tries, c.tries, err)
				}
			})
		})
	}
	t.Run("it stays away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gone := url(syscall.ECONNREFUSED)
			if err := throughRestart(t.Context(), func() error { return gone }); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := throughRestart(ctx, func() error { return gone }); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error("given up:", err)
			}
		})
	})
}
