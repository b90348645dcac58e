package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"kith.dev/core/local/apiproxy"
	"kith.dev/core/trust/audit"
)

// relay passes a request on to a subresource of the guest pod.
func (k *Kubelet) relay(subresource string, query func(url.Values) url.Values) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, pod := r.PathValue("namespace"), r.PathValue("pod")
		if len(r.TLS.VerifiedChains) == 0 { // nobody else learns which pods there are
			k.refuse(w, r, errNobody)
			return
		}
		n := k.node(namespace, pod)
		if n == nil {
			http.Error(w, fmt.Sprintf("pod %s/%s is on none of the virtual nodes here", namespace, pod), http.StatusNotFound)
			return
		}
		if err := k.access.check(r, n.Name); err != nil {
			k.refuse(w, r, err)
			return
		}
		twin := n.Twin(namespace)
		if twin == "" {
			http.Error(w, fmt.Sprintf("pod %s/%s has not reached %s yet", namespace, pod, n.Peer), http.StatusNotFound)
			return
		}
		values := query(r.URL.Query())
		if c := r.PathValue("container"); c != "" {
			values.Set("container", c)
		}
		target := n.API.URL.JoinPath("/api/v1/namespaces", twin, "pods", pod, subresource)
		target.RawQuery = values.Encode()

		proxy := apiproxy.Proxy{Transport: n.API.Streams, Log: slog.NewLogLogger(n.Log.Handler(), slog.LevelDebug)}
		proxy.Pass(w, r, apiproxy.Hop{ // which says nothing of the caller: the peer's door knows us by our key
			Aim:      func(to *url.URL) { *to = *target },
			Answered: plainError,
			Failed: func(err error) {
				n.Log.Debug("relay to the peer failed", "namespace", namespace, "pod", pod, "err", err)
				http.Error(w, fmt.Sprintf("%s cannot be reached: %v", n.Peer, err), http.StatusBadGateway)
			},
		})
	}
}

// refuse answers a caller that may not.
func (k *Kubelet) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code, reason := http.StatusForbidden, RefusedUser
	if errors.Is(err, errNobody) {
		code, reason = http.StatusUnauthorized, RefusedNobody
	}
	addr, _ := netip.ParseAddrPort(r.RemoteAddr) // left out when it is none
	k.cfg.Audit.Note(audit.Refusal{Door: audit.Kubelet, Reason: reason, Addr: addr, What: r.Method + " " + r.URL.Path, Why: err.Error()})
	http.Error(w, err.Error(), code)
}

// plainError turns a Status object into its message, as a kubelet answers: the API server in between wraps
// the text into a Status of its own with the same code.
func plainError(resp *http.Response) error {
	if resp.StatusCode < 400 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
	if err != nil {
		return err
	}
	if message := apiproxy.Message(resp, body); message != "" {
		body = []byte(message)
		resp.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// logQuery are the parameters of logs; the kubelet's API and the pod's have them under the same names.
func logQuery(in url.Values) url.Values {
	out := url.Values{}
	for _, name := range []string{"follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"} {
		if in.Has(name) {
			out[name] = in[name]
		}
	}
	return out
}

// streamQuery are the parameters of exec and attach.
func streamQuery(in url.Values) url.Values {
	out := url.Values{}
	for kubelet, api := range map[string]string{"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"} {
		if v := in.Get(kubelet); v == "1" || v == "true" {
			out.Set(api, "true")
		}
	}
	if command, ok := in["command"]; ok {
		out["command"] = command
	}
	return out
}

// portQuery is the list of ports, which only the websocket form of port-forward has in its URL.
func portQuery(in url.Values) url.Values {
	out := url.Values{}
	for _, ports := range in["port"] {
		for port := range strings.SplitSeq(ports, ",") {
			out.Add("ports", port)
		}
	}
	return out
}
