package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/base/places"
)

// DefaultSocket is where kithd listens unless its configuration says otherwise.
var DefaultSocket = places.Here().Socket

// maxAnswer bounds what is read of an answer that is not a stream.
const maxAnswer = 64 << 20

// Client calls the kithd behind one socket. It is safe for concurrent use.
type Client struct {
	socket  string
	http    http.Client
	silence time.Duration // the longest that a stream without an end may be silent
	refusal refusal
}

// patience is the silence of a Client: kithd gives a sign of life every 30 s.
const patience = 75 * time.Second

// New makes a client for the socket at path. Nothing is dialed before the first call.
func New(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &Client{socket: path, silence: patience, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true}}}
}

// Close lets idle connections go.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do makes one call and decodes the answer into out, which may be nil. It is the way to calls this package has no
// method for.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	body, err := c.send(ctx, method, path, "application/json", in)
	if err != nil {
		return err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		return c.explain(ctx, err)
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = b
		return nil
	}
	if out == nil {
		return nil
	}
	return understood(json.Unmarshal(b, out))
}

// send makes the request and gives the body of a good answer.
func (c *Client) send(ctx context.Context, method, path, accept string, in any) (io.ReadCloser, error) {
	if in == nil {
		return c.exchange(ctx, method, path, "", accept, nil)
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil, &api.Error{Code: api.CodeInternal, Message: "encode the request", Reason: err.Error()}
	}
	return c.exchange(ctx, method, path, "application/json", accept, bytes.NewReader(b))
}

// exchange is send with any body.
func (c *Client) exchange(ctx context.Context, method, path, kind, accept string, body io.Reader) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://kithd"+path, body)
	if err != nil {
		return nil, &api.Error{Code: api.CodeInvalid, Message: "no call to kithd can be made of this", Reason: err.Error()}
	}
	r.Header.Set("Accept", accept)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, api.MaxBody))
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	var failed struct{ Error *api.Error }
	if json.Unmarshal(b, &failed) != nil || failed.Error == nil {
		return nil, &api.Error{
			Code:    api.CodeInternal,
			Message: "kithd answered " + answer.Status,
			Reason:  fmt.Sprintf("%.200q", b),
			Do:      "is it kithd that listens at " + c.socket + "?",
		}
	}
	return nil, failed.Error
}

// explain turns an error of the transport into what a user can act on.
func (c *Client) explain(ctx context.Context, err error) *api.Error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &api.Error{Code: api.CodeTimeout, Message: "kithd did not finish in the time given"}
	case ctx.Err() != nil:
		return &api.Error{Code: api.CodeTimeout, Message: "stopped waiting for kithd", Reason: context.Cause(ctx).Error()}
	case errors.Is(err, fs.ErrPermission):
		return &api.Error{
			Code:    api.CodeForbidden,
			Message: "you may not talk to kithd",
			Reason:  c.socket + " is for " + whom(places.Here().Group),
			Do:      join(places.Here().Group),
		}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return c.notRunning(ctx)
	default:
		return &api.Error{
			Code:    api.CodeUnavailable,
			Message: "the connection to kithd broke",
			Reason:  err.Error(),
			Do:      "see its log: " + places.Here().ReadLog,
		}
	}
}

// notRunning is the error when nothing listens at the socket. If kithd refuses its configuration, it says so: kithd then ends at each
// start.
func (c *Client) notRunning(ctx context.Context) *api.Error {
	e := &api.Error{
		Code:    api.CodeUnavailable,
		Message: "kithd is not running",
		Reason:  "nobody answers at " + c.socket,
		Do:      "start it: " + places.Here().Start + "; or name its socket with --socket",
	}
	if c.socket != DefaultSocket { // of another kithd, with a configuration of its own
		return e
	}
	program, missing := Program()
	if missing != nil {
		return e
	}
	if why := c.refusal.why(ctx, program); why != "" {
		e.Reason, e.Do = "it does not start with "+why, "correct that, and start it: "+places.Here().Start
	}
	return e
}

// whom the socket is for, if it is for a group, or for none but its owner.
func whom(group string) string {
	if group == "" {
		return "root and the user who started kithd"
	}
	return "root and members of the group " + group
}

func join(group string) string {
	if group == "" {
		return "start a kithd of your own, or name its socket with --socket"
	}
	return "ask an administrator: usermod -aG " + group + " $USER; then log in again (the group is root's equal here)"
}

func understood(err error) error {
	if err == nil {
		return nil
	}
	return &api.Error{
		Code:    api.CodeInternal,
		Message: "the answer of kithd is not understood",
		Reason:  err.Error(),
		Do:      "kith and kithd may be of different versions: `kith version` shows both",
	}
}
