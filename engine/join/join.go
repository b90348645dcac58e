package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	kubeletbootstrap "k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"
)

// Options say which cluster a node joins, as what, and where it keeps what it is given.
type Options struct {
	Server   string // https://ADDRESS:PORT
	Token    Token
	Hashes   []string // of the cluster's authority, see Hash
	NodeName string
	Version  string // of Kubernetes, such as v1.36.3
	Dir      string // ca.crt and kubelet.kubeconfig
	CertDir  string // the kubelet's certificates

	patience time.Duration // usually patience
}

func (o Options) wait() time.Duration {
	if o.patience != 0 {
		return o.patience
	}
	return patience
}

func (o Options) authority() string  { return filepath.Join(o.Dir, "ca.crt") }
func (o Options) kubeconfig() string { return filepath.Join(o.Dir, "kubelet.kubeconfig") }

const (
	// patience is how long the cluster may take to sign for a token that was just made, and to grant a certificate.
	patience = 20 * time.Second
	// skew is how far clocks may be apart. A certificate that was just granted is good from five minutes before.
	skew = 4 * time.Minute
	// mostInfo is what is read of an answer to a stranger's question; a few kilobytes are usual.
	mostInfo = 1 << 20
)

// Join makes this machine a node of the cluster, once: it returns with the files in Dir and CertDir with which a kubelet runs.
func Join(ctx context.Context, o Options, log *slog.Logger) error {
	if len(o.Hashes) == 0 {
		return errors.New("ca-cert-hash is missing: without it this node would believe whoever answers; kith-k8s token create --print-join-command prints it on the server")
	}
	for _, h := range o.Hashes {
		if err := checkHash(h); err != nil {
			return err
		}
	}
	log.Info("asking to join", "server", o.Server, "node", o.NodeName, "token", o.Token.ID)
	info, clock, err := o.discover(ctx)
	if err != nil {
		return err
	}
	authorities, err := pinned(info, o.Hashes)
	if err != nil {
		return err
	}
	// In minutes: the server's Date has whole seconds (RFC 9110, 5.6.7), so a difference in seconds would be one too many or too few.
	if apart := time.Since(clock).Abs(); !clock.IsZero() && apart > skew {
		return fmt.Errorf("this machine's clock and the server's are %s apart (here %s, there %s): certificates would not be good; set the clock, by NTP for example",
			apart.Round(time.Minute), time.Now().UTC().Format(time.RFC3339), clock.UTC().Format(time.RFC3339))
	}
	if err := o.known(ctx, authorities); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	var text []byte
	for _, ca := range authorities {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: ca.Raw})...)
	}
	if err := os.WriteFile(o.authority(), text, 0o600); err != nil {
		return err
	}
	return o.certificate(ctx, log)
}

// discover asks the server, whoever it is, what cluster it is of, and believes what the token's secret signed: the authority's certificates,
// and what time the server has.
func (o Options) discover(ctx context.Context) (authority []byte, clock time.Time, err error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the answer is signed; what it says is then asked for
	}}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(o.wait()); ; {
		var info corev1.ConfigMap
		clock, err = get(ctx, client, o.Server+"/api/v1/namespaces/kube-public/configmaps/"+infoName, "", &info)
		if err != nil {
			return nil, clock, o.says(err)
		}
		signature, signed := info.Data[bootstrapapi.JWSSignatureKeyPrefix+o.Token.ID]
		switch {
		case signed && !jws.DetachedTokenIsValid(signature, info.Data[bootstrapapi.KubeConfigKey], o.Token.ID, o.Token.Secret):
			return nil, clock, fmt.Errorf("the server knows a token %s with another secret: copy the token once more from kith-k8s token create on the server", o.Token.ID)
		case signed:
			config, err := clientcmd.Load([]byte(info.Data[bootstrapapi.KubeConfigKey]))
			if err != nil || len(config.Clusters) != 1 {
				return nil, clock, fmt.Errorf("what %s says of its cluster cannot be read: %w", o.Server, err)
			}
			for _, c := range config.Clusters {
				authority = c.CertificateAuthorityData
			}
			return authority, clock, nil
		case time.Now().After(deadline):
			return nil, clock, fmt.Errorf("the server knows no token %s: it has expired, or was deleted, or is another cluster's; kith-k8s token list on the server shows those that are good, "+
				"and kith-k8s token create makes one", o.Token.ID)
		}
		select {
		case <-ctx.Done():
			return nil, clock, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// known asks the server as the one that was pinned, with the token: whether it takes it, which Kubernetes it is, whether the name is free.
func (o Options) known(ctx context.Context, authorities []*x509.Certificate) error {
	roots := x509.NewCertPool()
	for _, ca := range authorities {
		roots.AddCert(ca)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	var theirs struct{ GitVersion string }
	if _, err := get(ctx, client, o.Server+"/version", o.Token.String(), &theirs); err != nil {
		return o.says(err)
	}
	if err := supported(o.Version, theirs.GitVersion); err != nil {
		return err
	}
	var node corev1.Node
	_, err := get(ctx, client, o.Server+"/api/v1/nodes/"+o.NodeName, o.Token.String(), &node)
	var status statusError
	switch {
	case err == nil:
		return errors.New(taken(o.NodeName))
	case errors.As(err, &status) && status.code == http.StatusNotFound:
		return nil
	}
	return o.says(err)
}

// supported says what is wrong with a node's version of Kubernetes for a server's (kubernetes.io/releases/version-skew-policy): a kubelet is
// not newer than the API server, and up to three minor versions older.
func supported(mine, server string) error {
	m, err := version.ParseGeneric(mine)
	if err != nil {
		return nil // built by hand, it does not know
	}
	s, err := version.ParseGeneric(server)
	if err != nil {
		return fmt.Errorf("the server says that it is Kubernetes %q: %w", server, err)
	}
	if m.Major() != s.Major() || m.Minor() > s.Minor() || m.Minor()+3 < s.Minor() {
		return fmt.Errorf("this is Kubernetes %s and the server has %s: a node may be up to three minor versions older than its server, and not newer; install the Kith on both that is the same",
			mine, server)
	}
	return nil
}

// certificate asks for the kubelet's certificate as TLS bootstrapping has it, and waits until it is granted.
func (o Options) certificate(ctx context.Context, log *slog.Logger) error {
	bootstrap := filepath.Join(o.Dir, "join.kubeconfig")
	defer os.Remove(bootstrap) // the token is in it
	const name = "join"
	if err := clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{name: {Server: o.Server, CertificateAuthority: o.authority()}},
		AuthInfos:      map[string]*api.AuthInfo{name: {Token: o.Token.String()}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, bootstrap); err != nil {
		return err
	}
	if err := os.MkdirAll(o.CertDir, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait())
	defer cancel()
	err := kubeletbootstrap.LoadClientCert(ctx, o.kubeconfig(), bootstrap, o.CertDir, types.NodeName(o.NodeName))
	if err == nil {
		log.Info("joined", "server", o.Server, "node", o.NodeName)
		return nil
	}
	// A request is known by its key: with the same one the next would be answered as this was.
	_ = os.Remove(filepath.Join(o.CertDir, "kubelet-client.key.tmp"))
	if _, why, denied := strings.Cut(err.Error(), "message: "); denied {
		return fmt.Errorf("the server refuses to make this machine node %s: %s", o.NodeName, why)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the server did not grant a certificate within %s: its log says why (kubectl get csr on it shows the request): %w", patience, err)
	}
	return fmt.Errorf("ask for a certificate: %w", err)
}

// statusError is an answer that is none.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

func get(ctx context.Context, client *http.Client, url, token string, into any) (clock time.Time, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return clock, err
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return clock, err
	}
	defer resp.Body.Close()
	clock, _ = http.ParseTime(resp.Header.Get("Date")) // zero: it says none
	if resp.StatusCode != http.StatusOK {
		return clock, statusError{resp.StatusCode, resp.Status}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostInfo))
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return clock, err
}

// says makes of what went wrong with a question what to do about it.
func (o Options) says(err error) error {
	var status statusError
	var dial *net.OpError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &status) && status.code == http.StatusUnauthorized:
		return fmt.Errorf("the server does not take the token %s: it has expired or was deleted; kith-k8s token create on the server makes one", o.Token.ID)
	case errors.As(err, &status) && (status.code == http.StatusForbidden || status.code == http.StatusNotFound):
		return fmt.Errorf("%s lets no nodes join (it answers %s): start it with --agents", o.Server, status.text)
	case errors.As(err, &status):
		return fmt.Errorf("%s answers %s: see its log", o.Server, status.text)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the server's certificate is not good at this machine's time, %s: %w; is the clock right, here and there?", time.Now().UTC().Format(time.RFC3339), err)
	case errors.As(err, &unknown):
		return fmt.Errorf("%s has no certificate of the authority that ca-cert-hash names: somebody answers in its place, or the address is another server's: %w", o.Server, err)
	case errors.As(err, &host):
		return fmt.Errorf("%w; use the address that kith-k8s token create --print-join-command prints on the server", err)
	case errors.As(err, &dial):
		return fmt.Errorf("the server %s cannot be reached: %w; does it run, with --agents, at this address, and does a firewall let its port through?", o.Server, dial)
	case os.IsTimeout(err):
		return fmt.Errorf("the server %s does not answer in time; does it run, with --agents, at this address, and does a firewall let its port through?", o.Server)
	}
	return fmt.Errorf("ask %s: %w", o.Server, err)
}
