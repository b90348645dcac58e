package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// Self is what the server says of itself in every answer.
type Self struct {
	Name      string `json:"name"` // the host name, which in a pod is the pod's
	Node      string `json:"node,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	PodIP     string `json:"podIP,omitempty"`
}

// self reads NODE_NAME, POD_NAME, POD_NAMESPACE and POD_IP, which a pod sets by the downward API.
func self() Self {
	h, _ := os.Hostname()
	return Self{Name: h, Node: os.Getenv("NODE_NAME"), Pod: os.Getenv("POD_NAME"), Namespace: os.Getenv("POD_NAMESPACE"), PodIP: os.Getenv("POD_IP")}
}

// server is the HTTP part.
type server struct {
	healthy atomic.Bool
	client  *http.Client
}

// serve listens on HTTP_ADDR (:8080) and UDP_ADDR (:9999) until SIGTERM. It then logs "GRACE begin", stays for
// GRACE_SECONDS (0), logs "GRACE end" and exits with 0, so that a graceful deletion shows in the log.
func serve([]string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	s := &server{client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	s.healthy.Store(true)
	packets, err := net.ListenPacket("udp", envOr("UDP_ADDR", ":9999"))
	if err != nil {
		return err
	}
	defer packets.Close()
	go echoPackets(packets)
	l, err := net.Listen("tcp", envOr("HTTP_ADDR", ":8080"))
	if err != nil {
		return err
	}
	web := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	me := self()
	fmt.Printf("echo %s on node %q listens on %s\n", me.Name, me.Node, l.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, _ := time.ParseDuration(envOr("GRACE_SECONDS", "0") + "s")
	fmt.Println("GRACE begin", grace)
	time.Sleep(grace)
	end, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = web.Shutdown(end)
	fmt.Println("GRACE end")
	return nil
}

// Packet is the answer to a UDP packet.
type Packet struct {
	Self
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	Client string `json:"client"`
}

func echoPackets(c net.PacketConn) {
	buf := make([]byte, 65536)
	for {
		n, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error of an answer before
		}
		sum := sha256.Sum256(buf[:n])
		b, _ := json.Marshal(Packet{Self: self(), Bytes: n, SHA256: hex.EncodeToString(sum[:]), Client: from.String()})
		_, _ = c.WriteTo(b, from)
	}
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
