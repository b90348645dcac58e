package backend

import (
	"context"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

// A control plane that ends on the way is back within seconds, and asked for each half second of these.
const (
	restartPause    = 500 * time.Millisecond
	restartPatience = 20 * time.Second
)

// throughRestart does what must be safe to do twice, again while this laptop's API server hangs up or does not listen: what its owner
// wants is not lost because it was being started anew. The last error is what it gives.
func throughRestart(ctx context.Context, do func() error) (err error) {
	_ = wait.PollUntilContextTimeout(ctx, restartPause, restartPatience, true, func(context.Context) (bool, error) {
		err = do()
		return !hungUp(err), nil
	})
	return err
}

// hungUp reports whether nobody answered: the request may have been served, or not.
func hungUp(err error) bool {
	return err != nil && (utilnet.IsProbableEOF(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err))
}
