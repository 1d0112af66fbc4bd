#include "actors/tls_context.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "runtime/base/file.hpp"
#include "runtime/base/freed_by.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

using bio_ptr = std::unique_ptr<BIO, freed_by<BIO_free_all>>;
using certificate_ptr = std::unique_ptr<X509, freed_by<X509_free>>;
using key_ptr = std::unique_ptr<EVP_PKEY, freed_by<EVP_PKEY_free>>;
using context_ptr = std::shared_ptr<SSL_CTX>;

/// One of the three, as messages name it.
struct pem_file {
  const char* setting;
  const std::string& path;
  const char* expected;
};

tl::unexpected<error> unfit(const pem_file& file, const std::string& found) {
  return fail(
    errc::bad_config,
    fmt::format("{}: {}: found {}, expected {}", file.setting, file.path, found, file.expected),
    file.setting);
}

/// Why the last call failed, in OpenSSL's words.
std::string reason() {
  const auto code = ERR_peek_last_error();
  const char* text = ERR_reason_error_string(code);
  return text != nullptr ? text : fmt::format("error {:#x}", code);
}

/// Nobody is there to be asked for one.
int no_passphrase(char*, int, int, void* was_asked) {
  if (was_asked != nullptr) *static_cast<bool*>(was_asked) = true;
  return -1;
}

result<std::string> text_of(const pem_file& file) {
  auto read = read_small_file(file.path, 1 << 20);
  if (!read)
    return fail(
      errc::bad_config,
      fmt::format("{}: {}, expected {}", file.setting, read.error().message, file.expected),
      file.setting);
  return read;
}

bio_ptr reader_of(const std::string& text) {
  ERR_clear_error();
  return bio_ptr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

result<std::vector<certificate_ptr>> read_certificates(const pem_file& file) {
  DI_TRY(const auto text, text_of(file));
  const auto reader = reader_of(text);
  std::vector<certificate_ptr> out;
  while (auto* read = PEM_read_bio_X509_AUX(reader.get(), nullptr, no_passphrase, nullptr))
    out.emplace_back(read);
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
    return unfit(file, fmt::format("a certificate that can't be read ({})", reason()));
  if (out.empty()) return unfit(file, "no certificate");
  return out;
}

result<key_ptr> read_key(const pem_file& file) {
  DI_TRY(const auto text, text_of(file));
  const auto reader = reader_of(text);
  bool was_asked = false;
  key_ptr key(PEM_read_bio_PrivateKey(reader.get(), nullptr, no_passphrase, &was_asked));
  if (key) return key;
  if (was_asked) return unfit(file, "one that is protected by a passphrase");
  if (text.find("PRIVATE KEY-----") == std::string::npos) return unfit(file, "no private key");
  return unfit(file, fmt::format("a private key that can't be read ({})", reason()));
}

/// Whom a refused connection came from, without the port, by which the lines would all differ.
std::string peer_of(const SSL* ssl) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(SSL_get_fd(ssl), any, &size) != 0) return "somebody who has gone";
  const void* bytes = nullptr;
  if (address.ss_family == AF_INET) bytes = &reinterpret_cast<sockaddr_in*>(any)->sin_addr;
  if (address.ss_family == AF_INET6) bytes = &reinterpret_cast<sockaddr_in6*>(any)->sin6_addr;
  char text[INET6_ADDRSTRLEN]{};
  if (bytes == nullptr || inet_ntop(address.ss_family, bytes, text, sizeof text) == nullptr)
    return "an unknown address";
  return text;
}

/// Told of every turn of a handshake; one that only waits for the peer has left no error.
void note_handshake(const SSL* ssl, int where, int outcome) {
  if (where != SSL_CB_ACCEPT_EXIT || outcome > 0 || ERR_peek_last_error() == 0) return;
  log(severity::warning, "actor port: a connection from {} is refused: TLS: {}", peer_of(ssl),
      reason());
}

result<void> show(SSL_CTX* context, const pem_file& certificate_file, const pem_file& key_file) {
  DI_TRY(const auto chain, read_certificates(certificate_file));
  DI_TRY(const auto key, read_key(key_file));
  const auto refused = [] { return fmt::format("one that is not accepted ({})", reason()); };
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1)
    return unfit(certificate_file, refused());
  for (std::size_t i = 1; i < chain.size(); ++i)
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1)
      return unfit(certificate_file, refused());
  if (X509_check_private_key(chain.front().get(), key.get()) != 1)
    return unfit(key_file, "the key of another certificate than " + certificate_file.path);
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) return unfit(key_file, refused());
  return {};
}

result<void> trust(SSL_CTX* context, const pem_file& file) {
  DI_TRY(const auto authorities, read_certificates(file));
  for (const auto& it : authorities)
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), it.get()) != 1)
      return unfit(file, fmt::format("a certificate that is not accepted ({})", reason()));
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return {};
}

/// Whether TLS is wanted.
result<bool> is_wanted(const actor_settings& settings) {
  const auto& [certificate, key, ca] =
    std::tie(settings.tls_certificate, settings.tls_key, settings.tls_ca);
  if (certificate.empty() && key.empty() && ca.empty()) return false;
  if (!certificate.empty() && !key.empty() && !ca.empty()) return true;
  const auto shown = [](const std::string& path) { return path.empty() ? "nothing" : path; };
  return fail(errc::bad_config,
              fmt::format("actor.tls_certificate, actor.tls_key, actor.tls_ca: found {}, {} and "
                          "{}, expected all three or none",
                          shown(certificate), shown(key), shown(ca)),
              "actor.tls_certificate");
}

}  // namespace

result<std::shared_ptr<ssl_ctx_st>> open_tls_context(const actor_settings& settings) {
  DI_TRY(const bool has_tls, is_wanted(settings));
  if (!has_tls) return context_ptr();
  ERR_clear_error();
  const context_ptr context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  // The ciphers of the actor library.
  if (!context || SSL_CTX_set_cipher_list(context.get(), "HIGH:!aNULL:!MD5") != 1)
    return fail(errc::internal, fmt::format("OpenSSL: {}", reason()));
  // Nobody resumes a session here: each connection shows its certificates.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_info_callback(context.get(), note_handshake);
  DI_TRY_VOID(show(context.get(),
                   {"actor.tls_certificate", settings.tls_certificate, "a certificate in PEM form"},
                   {"actor.tls_key", settings.tls_key,
                    "the private key of that certificate in PEM form, without a passphrase"}));
  DI_TRY_VOID(trust(context.get(), {"actor.tls_ca", settings.tls_ca,
                                    "certificates of those who sign peers in PEM form"}));
  ERR_clear_error();
  return context;
}

}  // namespace deepinfer
