package portmap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/huin/goupnp"
	"github.com/huin/goupnp/dcps/internetgateway2"
	"github.com/huin/goupnp/ssdp"
)

const (
	// igd is what is searched for; those of version 2 answer, too.
	igd = "urn:schemas-upnp-org:device:InternetGatewayDevice:1"

	searchTimeout = 2 * time.Second
	callTimeout   = 3 * time.Second
	mostAnswers   = 32        // datagrams of the router that are read
	mostAnswer    = 256 << 10 // bytes of an answer by HTTP
	otherPorts    = 3         // that are tried when one is taken
	description   = "kith"    // of a mapping, for whoever looks at the router
)

// connection is a service of a router by which it maps ports: the three that there are have the same calls.
type connection interface {
	AddPortMappingCtx(ctx context.Context, remote string, outside uint16, protocol string, inside uint16, client string, enabled bool, description string, lease uint32) error
	DeletePortMappingCtx(ctx context.Context, remote string, outside uint16, protocol string) error
	GetExternalIPAddressCtx(ctx context.Context) (string, error)
}

type gatewayDevice struct {
	connection
	own netip.Addr
}

// upnp is a router that answers as an Internet Gateway Device.
func upnp(ctx context.Context, at way) (mapper, error) {
	searching, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	answers, err := ssdp.RawSearch(searching, search{at}, igd, 2)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		where, err := a.Location()
		if err != nil {
			continue
		}
		if c, err := device(ctx, at, where); err == nil {
			return gatewayDevice{c, at.own}, nil
		}
	}
	return nil, errNoAnswer
}

// device reads what a router says of itself, and takes the service that maps ports.
func device(ctx context.Context, at way, where *url.URL) (connection, error) {
	client := &http.Client{
		Transport: only(at), Timeout: callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it leads elsewhere") },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the router answers %s", resp.Status)
	}
	return described(resp.Body, where, client)
}

// described is the service that maps ports, of those that a router describes.
func described(body io.Reader, where *url.URL, client *http.Client) (connection, error) {
	var root goupnp.RootDevice
	doc := xml.NewDecoder(body)
	doc.DefaultSpace = goupnp.DeviceXMLNamespace
	if err := doc.Decode(&root); err != nil {
		return nil, err
	}
	root.SetURLBase(where)
	if two, err := internetgateway2.NewWANIPConnection2ClientsFromRootDevice(&root, where); err == nil && len(two) > 0 {
		two[0].SOAPClient.HTTPClient = *client
		return two[0], nil
	}
	if one, err := internetgateway2.NewWANIPConnection1ClientsFromRootDevice(&root, where); err == nil && len(one) > 0 {
		one[0].SOAPClient.HTTPClient = *client
		return one[0], nil
	}
	if ppp, err := internetgateway2.NewWANPPPConnection1ClientsFromRootDevice(&root, where); err == nil && len(ppp) > 0 {
		ppp[0].SOAPClient.HTTPClient = *client
		return ppp[0], nil
	}
	return nil, errors.New("the router has no service that maps ports")
}

func (gatewayDevice) by() string { return "UPnP" }

func (d gatewayDevice) external(ctx context.Context) (netip.Addr, error) {
	text, err := d.GetExternalIPAddressCtx(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	return a.Unmap(), err
}

// add takes another port when one is taken, which routers say in many ways.
func (d gatewayDevice) add(ctx context.Context, p Port, outside uint16, lease time.Duration) (uint16, time.Duration, error) {
	var err error
	for range 1 + otherPorts {
		err = d.AddPortMappingCtx(ctx, "", outside, strings.ToUpper(string(p.Protocol)), p.Number, d.own.String(), true, description, uint32(lease/time.Second))
		if err == nil {
			return outside, lease, nil
		}
		outside = uint16(1024 + rand.N(1<<16-1024))
	}
	return 0, 0, err
}

func (d gatewayDevice) remove(ctx context.Context, p Port, outside uint16) error {
	return d.DeletePortMappingCtx(ctx, "", outside, strings.ToUpper(string(p.Protocol)))
}

// search sends what ssdp searches with to the network of the router, and gives what the router answers.
type search struct{ at way }

// DoWithContext is ssdp.HTTPUClientCtx.
func (s search) DoWithContext(req *http.Request, sends int) (list []*http.Response, err error) {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: s.at.own.AsSlice()})
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	defer context.AfterFunc(req.Context(), func() { socket.Close() })()
	to, err := netip.ParseAddrPort(req.Host)
	if err != nil {
		return nil, err
	}
	var question bytes.Buffer
	fmt.Fprintf(&question, "%s * HTTP/1.1\r\n", req.Method)
	for name, values := range req.Header { // in the case in which they stand there
		fmt.Fprintf(&question, "%s: %s\r\n", name, strings.Join(values, ","))
	}
	question.WriteString("\r\n")
	for range sends {
		for _, at := range []netip.AddrPort{to, netip.AddrPortFrom(s.at.router, to.Port())} { // some answer one of the two
			_, _ = socket.WriteToUDPAddrPort(question.Bytes(), at)
		}
	}
	buf := make([]byte, 2048)
	for range mostAnswers {
		n, from, err := socket.ReadFromUDPAddrPort(buf)
		if err != nil {
			return list, nil // it is over
		}
		if from.Addr().Unmap() != s.at.router {
			continue
		}
		resp, err := answered(buf[:n], req)
		if err != nil {
			continue
		}
		list = append(list, resp)
		if resp.StatusCode == http.StatusOK && resp.Header.Get("St") == igd {
			return list, nil
		}
	}
	return list, nil
}

// answered reads a datagram.
func answered(datagram []byte, req *http.Request) (*http.Response, error) {
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(bytes.Clone(datagram))), req)
}

// only lets requests to the router alone pass, and so much of its answers.
type only way

// RoundTrip is http.RoundTripper.
func (o only) RoundTrip(req *http.Request) (*http.Response, error) {
	if a, err := netip.ParseAddr(req.URL.Hostname()); err != nil || a != o.router || req.URL.Scheme != "http" {
		return nil, fmt.Errorf("%s is not the router", req.URL.Host)
	}
	transport := &http.Transport{
		DialContext:       (&net.Dialer{Timeout: callTimeout, LocalAddr: &net.TCPAddr{IP: o.own.AsSlice()}}).DialContext,
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10, ResponseHeaderTimeout: callTimeout,
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		resp.Body = bounded{io.LimitReader(resp.Body, mostAnswer), resp.Body}
	}
	return resp, err
}

// bounded is the beginning of a body.
type bounded struct {
	io.Reader
	io.Closer
}
