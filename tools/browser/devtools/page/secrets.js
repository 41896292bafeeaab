  // Recognizes fields that hold secrets, such as passwords and card numbers.

  const SECRET_NAME = new RegExp(
    "passw|passphrase|passcode|\\bpass\\b|\\bpwd\\b|\\bpin\\b|secret|\\bcvv|\\bcvc|\\botp\\b|one.?time|security.?code|" +
    "card.?number|kennwort|contrase|mot de passe|senha|wachtwoord|lösenord|hasło|heslo|пароль|密码|パスワード", "iu");
  const SECRET_PURPOSE = /(^|\s)(cc-\S+|one-time-code|current-password|new-password)(\s|$)/i;

  const isTick = field => field.type === "checkbox" || field.type === "radio";

  // `labelled` returns the words of a field's labels.
  function looksSecret(field, labelled) {
    if (field.type === "password" || SECRET_PURPOSE.test(field.getAttribute("autocomplete") ?? "")) return true;
    if (field.localName === "select" || isTick(field)) return false;
    const names = [field.name, field.id, field.getAttribute("aria-label"), field.placeholder, labelled(field)];
    return SECRET_NAME.test(names.join(" ").replaceAll("_", " "));
  }

