package kubelet

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
)

const (
	allowedFor = 5 * time.Minute
	deniedFor  = 30 * time.Second
	answersMax = 1000

	authenticated = "system:authenticated"
)

// access authorises callers of the kubelet API by SubjectAccessReviews of the home cluster, and caches the answers.
type access struct {
	home    kubernetes.Interface
	answers *cache.LRUExpireCache // by question: whether it is allowed
}

func newAccess(home kubernetes.Interface) *access {
	return &access{home: home, answers: cache.NewLRUExpireCache(answersMax)}
}

// errNobody: the caller shows neither a certificate of the cluster nor, where that is enough, a token.
var errNobody = errors.New("no client certificate")

// check says why the caller may not use the node as its API server does; nil when it may. The certificate was verified
// in the handshake.
func (a *access) check(r *http.Request, node string) error {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return errNobody
	}
	verb := "create"
	if r.Method == http.MethodGet {
		verb = "get"
	}
	return a.ask(r.Context(), certified(r), verb, []string{"proxy"}, node)
}

// checkUsage says why the caller may not see what pods use: metrics or stats of the node, by certificate or token.
func (a *access) checkUsage(r *http.Request, what, node string) error {
	subresources := []string{what, "proxy"}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return a.ask(r.Context(), certified(r), "get", subresources, node)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || len(token) > maxToken {
		return errNobody
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	review, err := a.home.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask whose token it is: %w", err)
	}
	if !review.Status.Authenticated {
		return errNobody
	}
	return a.ask(r.Context(), caller{review.Status.User.Username, review.Status.User.Groups}, "get", subresources, node)
}

// maxToken is more than any token of a service account has.
const maxToken = 16 << 10

type caller struct {
	user   string
	groups []string
}

func certified(r *http.Request) caller {
	subject := r.TLS.VerifiedChains[0][0].Subject
	return caller{subject.CommonName, subject.Organization}
}

// ask gives nil when the caller may do that with one of the subresources of the node.
func (a *access) ask(ctx context.Context, c caller, verb string, subresources []string, node string) error {
	for _, sub := range subresources {
		allowed, err := a.allowed(ctx, c.user, c.groups, verb, sub, node)
		if err != nil {
			return fmt.Errorf("ask whether %s may %s nodes/%s: %w", c.user, verb, sub, err)
		}
		if allowed {
			return nil
		}
	}
	return fmt.Errorf("user %s may not %s nodes/%s of node %s", c.user, verb, subresources[0], node)
}

func (a *access) allowed(ctx context.Context, user string, groups []string, verb, subresource, node string) (bool, error) {
	if !slices.Contains(groups, authenticated) {
		groups = append(slices.Clone(groups), authenticated)
	}
	question := strings.Join(append([]string{user, verb, subresource, node}, groups...), "\x00")
	if known, ok := a.answers.Get(question); ok {
		return known.(bool), nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	review, err := a.home.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Subresource: subresource, Name: node}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	known := deniedFor
	if review.Status.Allowed {
		known = allowedFor
	}
	a.answers.Add(question, review.Status.Allowed, known)
	return review.Status.Allowed, nil
}

const (
	clientCANamespace = "kube-system"
	clientCAName      = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

// clientCA is the authority of the home cluster's client certificates, which it follows.
type clientCA struct {
	home kubernetes.Interface
	log  *slog.Logger

	current atomic.Pointer[x509.CertPool]
	said    atomic.Pointer[string] // why it is not known, once
}

func (c *clientCA) run(ctx context.Context) error {
	maps := c.home.CoreV1().ConfigMaps(clientCANamespace)
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, clientCAName).String()
	}
	changed := func(obj any) {
		if cm, is := obj.(*corev1.ConfigMap); is {
			c.take(cm)
		}
	}
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				only(&o)
				list, err := maps.List(ctx, o)
				if err != nil {
					c.unknown(err)
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				only(&o)
				return maps.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.ConfigMap{},
		Handler:    toolscache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }},
	})
	informer.RunWithContext(ctx)
	return nil
}

func (c *clientCA) take(cm *corev1.ConfigMap) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(cm.Data[clientCAKey])) {
		c.unknown(fmt.Errorf("ConfigMap %s/%s has no certificate under %s", clientCANamespace, clientCAName, clientCAKey))
		return
	}
	c.current.Store(pool)
}

// unknown says once why the authority is not known; the one that was known stays.
func (c *clientCA) unknown(err error) {
	why := err.Error()
	if was := c.said.Swap(&why); was == nil || *was != why {
		c.log.Warn("cannot read the cluster's client authority; logs and exec of offloaded pods need it", "err", err)
	}
}
