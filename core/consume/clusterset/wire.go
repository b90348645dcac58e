package clusterset

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/trust/wire"
)

// Path is where a provider tells a consumer which of its services it exports to it: an upgrade to Protocol. The consumer says one line, an Ask; the
// provider then tells what there is, that this was all, and what changes, a line of JSON each.
const (
	Path     = "/kith/v2/services"
	Protocol = "kith-services"
)

// Bounds of the protocol.
const (
	MaxServices = 256     // that one peer exports to another
	MaxPorts    = 64      // of one
	MaxSlices   = 16      // of one: as many as there are different sets of ports of its pods
	maxLabels   = 32      // and annotations, of one
	maxMetadata = 4 << 10 // bytes of those
	maxLine     = 64 << 10
	maxAsk      = 8 << 10
)

// Ask is what the consumer says.
type Ask struct {
	Namespaces []string `json:"namespaces"` // by name or pattern, in which it has services in common with the provider
}

// Check reports what cannot be meant.
func (a *Ask) Check() error {
	if !sharing.CheckServices(a.Namespaces) {
		return errors.New("namespaces: too many, or none that can be")
	}
	return nil
}

// Name is that of a service, as its ServiceExport has it too.
type Name struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Tell is a line of the provider: one of these.
type Tell struct {
	Export *Export `json:"export,omitempty"` // as it is now
	Gone   *Name   `json:"gone,omitempty"`   // exported to this consumer no more
	Synced bool    `json:"synced,omitempty"` // that was all there is
}

// Export is a service as its cluster exports it.
type Export struct {
	Name
	Since    time.Time `json:"since"` // of its ServiceExport: of two that differ the older one counts
	Headless bool      `json:"headless,omitempty"`
	Ports    []Port    `json:"ports,omitempty"`

	SessionAffinity       corev1.ServiceAffinity              `json:"sessionAffinity,omitempty"`
	AffinitySeconds       int32                               `json:"affinitySeconds,omitempty"`
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	TrafficDistribution   string                              `json:"trafficDistribution,omitempty"`
	Labels                map[string]string                   `json:"labels,omitempty"`
	Annotations           map[string]string                   `json:"annotations,omitempty"`
	Slices                []Slice                             `json:"slices,omitempty"`
}

// Port is one of a service's.
type Port struct {
	Name        string          `json:"name,omitempty"`
	Protocol    corev1.Protocol `json:"protocol,omitempty"`
	AppProtocol string          `json:"appProtocol,omitempty"`
	Port        int32           `json:"port"`
}

// Slice is endpoints that listen at the same ports, those of a service by name.
type Slice struct {
	Ports     []Port     `json:"ports,omitempty"`
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is a pod behind a service. Its address is the one by which the other side reaches it.
type Endpoint struct {
	Address     netip.Addr `json:"address"`
	Hostname    string     `json:"hostname,omitempty"`
	Ready       bool       `json:"ready,omitempty"`
	Serving     bool       `json:"serving,omitempty"`
	Terminating bool       `json:"terminating,omitempty"`
}

// Check reports what of a provider's line cannot be meant; within is the range of this cluster's addresses there.
func (t *Tell) Check(within netip.Prefix) error {
	switch {
	case t.Export != nil:
		return t.Export.check(within)
	case t.Gone != nil:
		return t.Gone.check()
	}
	return nil
}

func (n Name) check() error {
	if len(validation.IsDNS1123Label(n.Namespace)) > 0 || len(validation.IsDNS1035Label(n.Name)) > 0 {
		return fmt.Errorf("%.80q/%.80q is no service", n.Namespace, n.Name)
	}
	return nil
}

func (e *Export) check(within netip.Prefix) error {
	if err := e.Name.check(); err != nil {
		return err
	}
	wrong := func(format string, about ...any) error {
		return fmt.Errorf("service %s/%s: %w", e.Namespace, e.Name.Name, fmt.Errorf(format, about...))
	}
	switch {
	case len(e.Slices) > MaxSlices:
		return wrong("%d slices of endpoints, at most %d are taken", len(e.Slices), MaxSlices)
	case len(e.Labels)+len(e.Annotations) > maxLabels:
		return wrong("%d labels and annotations, at most %d are taken", len(e.Labels)+len(e.Annotations), maxLabels)
	case len(e.TrafficDistribution) > 63:
		return wrong("trafficDistribution is too long")
	case e.AffinitySeconds < 0 || e.AffinitySeconds > 86400:
		return wrong("affinitySeconds %d is not of 0 to 86400", e.AffinitySeconds)
	}
	switch e.SessionAffinity {
	case "", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP:
	default:
		return wrong("sessionAffinity %.20q is none", e.SessionAffinity)
	}
	switch e.InternalTrafficPolicy {
	case "", corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal:
	default:
		return wrong("internalTrafficPolicy %.20q is none", e.InternalTrafficPolicy)
	}
	if err := checkMetadata(e.Labels, e.Annotations); err != nil {
		return wrong("%w", err)
	}
	if err := checkPorts(e.Ports, false); err != nil {
		return wrong("%w", err)
	}
	pods := 0
	for _, s := range e.Slices {
		if err := checkPorts(s.Ports, true); err != nil {
			return wrong("%w", err)
		}
		for _, p := range s.Endpoints {
			switch pods++; {
			case pods > MaxEndpoints:
				return wrong("more than %d endpoints", MaxEndpoints)
			case !within.Contains(p.Address):
				return wrong("%s is not in %s, where this cluster's addresses there are", p.Address, within)
			case p.Hostname != "" && len(validation.IsDNS1123Label(p.Hostname)) > 0:
				return wrong("%.80q is no hostname", p.Hostname)
			}
		}
	}
	return nil
}

// MaxEndpoints of one service: a peer has addresses for fewer pods, but where they are translated.
const MaxEndpoints = 256

// checkMetadata reports what of exported labels and annotations is not taken: none that Kith or Kubernetes give a meaning to.
func checkMetadata(labels, annotations map[string]string) error {
	size := 0
	for _, list := range []map[string]string{labels, annotations} {
		for name, value := range list {
			size += len(name) + len(value)
			domain, _, _ := strings.Cut(name, "/")
			switch {
			case len(validation.IsQualifiedName(name)) > 0:
				return fmt.Errorf("%.80q is no name of a label or annotation", name)
			case domain != name && (domain == "kith.dev" || strings.HasSuffix(domain, ".kith.dev") || domain == mcs.GroupName || strings.HasPrefix(name, "multicluster.kubernetes.io/")):
				return fmt.Errorf("%.80q is not for peers to say", name)
			}
		}
	}
	for _, value := range labels {
		if len(validation.IsValidLabelValue(value)) > 0 {
			return fmt.Errorf("%.80q is no value of a label", value)
		}
	}
	if size > maxMetadata {
		return fmt.Errorf("labels and annotations of %d bytes, at most %d are taken", size, maxMetadata)
	}
	return nil
}

// checkPorts of a service or, where any may be missing, of endpoints.
func checkPorts(ports []Port, ofEndpoints bool) error {
	if len(ports) > MaxPorts {
		return fmt.Errorf("%d ports, at most %d are taken", len(ports), MaxPorts)
	}
	for _, p := range ports {
		switch {
		case p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0, p.Name == "" && !ofEndpoints && len(ports) > 1:
			return fmt.Errorf("%.80q is no name of a port", p.Name)
		case p.Port < 1 || p.Port > 65535:
			return fmt.Errorf("port %d is none", p.Port)
		case p.AppProtocol != "" && len(validation.IsQualifiedName(p.AppProtocol)) > 0:
			return fmt.Errorf("appProtocol %.80q is none", p.AppProtocol)
		}
		switch p.Protocol {
		case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		default:
			return fmt.Errorf("protocol %.20q is none", p.Protocol)
		}
	}
	return nil
}

// bound is how much may be made of a line.
var bound = wire.Bound{Factor: 12, Slack: 64 << 10}

// ReadAsk reads a consumer's line.
func ReadAsk(r io.Reader) (a Ask, err error) {
	if err = lines(r, maxAsk).Next(&a); err == nil {
		err = a.Check()
	}
	return a, err
}

// lines reads those of one side.
func lines(r io.Reader, most int) *wire.Lines { return wire.NewLines(r, most, messages, bound) }

// Line is a message as it is written.
func Line(message any) ([]byte, error) {
	raw, err := json.Marshal(message)
	if err == nil && len(raw) >= maxLine {
		err = fmt.Errorf("a line of %d bytes, at most %d are taken", len(raw), maxLine)
	}
	return append(raw, '\n'), err
}

var messages = wire.Messages(Ask{}, Tell{})

// affinity of a service, as Kubernetes has it.
func (e *Export) affinity() *corev1.SessionAffinityConfig {
	if e.SessionAffinity != corev1.ServiceAffinityClientIP || e.AffinitySeconds == 0 {
		return nil
	}
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &e.AffinitySeconds}}
}

// since is the ServiceExport's time.
func since(t metav1.Time) time.Time { return t.UTC() }
